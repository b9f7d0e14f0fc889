"""How a person or a program watches and steers a running episode: flags, answers, the listener, the device's lease."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from agent.trajectory.events import Event

Phase = Literal["preparing", "thinking", "acting", "judging", "paused", "done"]


@dataclass(frozen=True)
class Decision:
    """The operator's answer to one action under --confirm; `message` is what the model is told where `run` is false."""

    run: bool
    message: str = ""


@dataclass(frozen=True)
class PauseChoice:
    """What to do with a paused run: go on (with `text` as a person's message), stop and judge, or quit unjudged."""

    kind: Literal["continue", "message", "stop", "quit"]
    text: str = ""


@dataclass(frozen=True)
class Status:
    """What the episode is doing right now; never recorded. `started_at` is in seconds since the Unix epoch."""

    phase: Phase
    detail: str
    turn: int
    started_at: float


class Operator(Protocol):
    """A person at a terminal; asked only between steps, from the thread that runs the episode."""

    def confirm(self, name: str, arguments: Mapping[str, Any]) -> Decision: ...

    def paused(self) -> PauseChoice: ...


class Listener(Protocol):
    """Told of every event right after it is on disk, and of what is going on; called from the episode's thread, or
    from the one that judges while that one waits for it.
    """

    def on_event(self, event: Event) -> None: ...

    def on_status(self, status: Status) -> None: ...


class Device(Protocol):
    """What a measurement needs for itself (a GPU, the quiet of all cores), shared by several episodes."""

    def lease(self, *, leave: Callable[[], bool]) -> AbstractContextManager[Mapping[str, str]]:
        """Entering waits until the device is free; it asks `leave` at least twice a second meanwhile.

        Gives the environment variables of the commands that use the device (which GPU it is).

        Raises agent.loop.waiting.Interrupted, without the lease, soon after `leave` turned true.
        """
        ...


class SilentListener:
    """A listener for programs that read events.jsonl afterwards."""

    def on_event(self, event: Event) -> None:
        pass

    def on_status(self, status: Status) -> None:
        pass


class Controls:
    """Requests to a running episode, callable from any thread and from a signal handler.

    Plain attribute writes only: a handler may run while the main thread holds any lock, so there is none.
    A pause takes effect between steps. A stop interrupts the running command or the wait for the model, then the best
    submission is judged. A quit does the same without judging; the run can be resumed.
    """

    def __init__(self) -> None:
        self._pause = False
        self._stop = False
        self._quit = False

    def request_pause(self) -> None:
        self._pause = True

    def request_stop(self) -> None:
        self._stop = True

    def request_quit(self) -> None:
        self._quit = True

    def clear_pause(self) -> None:
        """Called by the loop when it shows the pause menu."""
        self._pause = False

    @property
    def pause_requested(self) -> bool:
        return self._pause

    @property
    def stop_requested(self) -> bool:
        return self._stop

    @property
    def quit_requested(self) -> bool:
        return self._quit

    @property
    def leaving(self) -> bool:
        """A stop or a quit was requested: waits end now."""
        return self._stop or self._quit

    @property
    def any_requested(self) -> bool:
        return self._pause or self._stop or self._quit

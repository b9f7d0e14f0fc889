"""What ^C, SIGTERM and SIGHUP mean while an episode runs.

With an operator at a terminal, ^C pauses; a second one before the pause has begun stops and judges, a third quits.
Otherwise, and always for SIGTERM and SIGHUP, the first stops and judges, the second quits. A handler only sets flags
of Controls and says one line; the episode's thread does the rest.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from agent.loop.control import Controls

_HANDLED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalState:
    """Which signal, if any, made the episode quit."""

    def __init__(self, controls: Controls, *, interactive: bool, say: Callable[[str], None]) -> None:
        self._controls = controls
        self._interactive = interactive
        self._say = say
        self.quit_by: int | None = None

    def handle(self, number: int, frame: FrameType | None = None) -> None:
        controls = self._controls
        if number == signal.SIGINT and self._interactive and not controls.any_requested:
            controls.request_pause()
            self._say("pausing after this step; ^C again stops it and judges")
        elif not controls.leaving:
            controls.request_stop()
            self._say("stopping: the best submission is judged; again to quit without that")
        else:
            controls.request_quit()
            self.quit_by = number
            self._say("quitting; nothing that was recorded is lost")


class LeaveState(SignalState):
    """Where there is nothing to be judged any more: the first signal leaves at once, in `words`."""

    def __init__(self, controls: Controls, *, say: Callable[[str], None], words: str) -> None:
        super().__init__(controls, interactive=False, say=say)
        self._words = words

    def handle(self, number: int, frame: FrameType | None = None) -> None:
        self._controls.request_quit()
        self.quit_by = number
        self._say(self._words)


@contextmanager
def handled_signals(controls: Controls, *, interactive: bool, say: Callable[[str], None]) -> Iterator[SignalState]:
    """Install the handlers for the time of one episode (main thread only) and put the earlier ones back."""
    with installed(SignalState(controls, interactive=interactive, say=say)) as state:
        yield state


@contextmanager
def installed(state: SignalState) -> Iterator[SignalState]:
    """The handlers of `state`, main thread only; the earlier ones are put back."""
    before = {number: signal.signal(number, state.handle) for number in _HANDLED}
    try:
        yield state
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

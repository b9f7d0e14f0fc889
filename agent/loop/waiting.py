"""Waits for a blocking call while staying able to stop: it runs in a thread, the episode's thread watches the flags.

The one place where the loop uses threads: neither a socket read nor a container's exec can be interrupted otherwise.
A call that is given up on keeps its thread until it returns; the thread is a daemon, its result is dropped and it never
touches the log. A thread that has returned waits for the next call of whatever episode: with forty episodes at once,
starting and joining one for every turn costs several times what handing a call over does.
"""

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from agent.loop.control import Device
from agent.loop.limits import Clock
from agent.sandbox.base import Sandbox

T = TypeVar("T")
FIRST_POLL_S: Final = 0.05
POLL_S: Final = 0.4
"""Between two looks at the flags, once a call has taken longer than that: each look of each episode is a wake-up."""
GRACE_S: Final = 15.0


class Interrupted(Exception):
    """A stop or quit was requested while something was running."""


class OutOfTime(Exception):
    """The time budget ended while something was running."""


@dataclass(frozen=True)
class Lease:
    """A device that is held: the seconds that were waited for it, and what commands that use it are told."""

    waited_s: float = 0.0
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass
class _Call:
    work: Callable[[], Any]
    ended: "queue.SimpleQueue[_Ended]" = field(default_factory=queue.SimpleQueue)


@dataclass(frozen=True)
class _Ended:
    value: Any = None
    error: BaseException | None = None


class _Worker(threading.Thread):
    """Runs calls one after the other; in `_idle` while it has none."""

    def __init__(self) -> None:
        super().__init__(daemon=True, name="agent-call")
        self.calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        while True:
            call = self.calls.get()
            try:
                ended = _Ended(call.work())
            except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
                ended = _Ended(error=error)
            _idle.append(self)  # before the caller goes on, so that its next call finds this thread
            call.ended.put(ended)
            del call, ended  # what they hold is not to live until the next call


_idle: deque[_Worker] = deque()


def _begin(work: Callable[[], Any]) -> "queue.SimpleQueue[_Ended]":
    call = _Call(work)
    _free_worker().calls.put(call)
    return call.ended


def _free_worker() -> _Worker:
    with contextlib.suppress(IndexError):
        while True:
            worker = _idle.pop()  # the one that ran last: its stack is still in the caches
            if worker.is_alive():  # not so in a process that was forked from the one that has the threads
                return worker
    return _Worker()


def wait_for(
    call: Callable[[], T],
    *,
    leave: Callable[[], bool],
    timeout_s: float | None = None,
    give_up: Callable[[], None] | None = None,
) -> T:
    """The call's result or exception. Raises Interrupted (`leave` said so) or OutOfTime, after `give_up` if given."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    ended, poll_s = _begin(call), FIRST_POLL_S
    while (found := _next(ended, poll_s if deadline is None else min(poll_s, deadline - time.monotonic()))) is None:
        poll_s = min(2 * poll_s, POLL_S)
        if (error := _why_leave(leave, deadline)) is None:
            continue
        if give_up is not None:
            give_up()
            _next(ended, GRACE_S)
        raise error
    if found.error is not None:
        raise found.error
    value: T = found.value
    return value


def _next(ended: "queue.SimpleQueue[_Ended]", timeout_s: float) -> _Ended | None:
    try:
        return ended.get(timeout=max(0.0, timeout_s))
    except queue.Empty:
        return None


def wait_for_sandboxes(call: Callable[[Callable[[Sandbox], None]], T], *, leave: Callable[[], bool]) -> T:
    """As wait_for, for a call that tells its argument of each sandbox it opens: giving up closes them all."""
    opened: list[Sandbox] = []
    given_up = threading.Event()

    def tell(sandbox: Sandbox) -> None:
        opened.append(sandbox)
        if given_up.is_set():
            sandbox.close()

    def close() -> None:
        given_up.set()
        for sandbox in tuple(opened):
            sandbox.close()

    return wait_for(lambda: call(tell), leave=leave, give_up=close)


@contextlib.contextmanager
def leased(device: Device | None, *, clock: Clock, leave: Callable[[], bool]) -> Iterator[Lease]:
    """Holds the device; waiting for it does not count on the clock."""
    if device is None:
        yield Lease()
        return
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        with clock.stopped():
            variables = stack.enter_context(device.lease(leave=leave))
        yield Lease(time.monotonic() - began, variables)


def _why_leave(leave: Callable[[], bool], deadline: float | None) -> Exception | None:
    if leave():
        return Interrupted()
    if deadline is not None and time.monotonic() >= deadline:
        return OutOfTime()
    return None

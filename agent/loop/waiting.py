"""Waits for a blocking call while staying able to stop: it runs in a thread, the episode's thread watches the flags.

The one place where the loop uses a thread: neither a socket read nor a container's exec can be interrupted otherwise.
A call that is given up on keeps its thread until it returns; the thread is a daemon, its result is dropped and it never
touches the log.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from agent.loop.control import Device
from agent.loop.limits import Clock
from agent.sandbox.base import Sandbox

T = TypeVar("T")
POLL_S: Final = 0.1
GRACE_S: Final = 15.0


class Interrupted(Exception):
    """A stop or quit was requested while something was running."""


class OutOfTime(Exception):
    """The time budget ended while something was running."""


class _Call(Generic[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._value: T | None = None
        self._error: BaseException | None = None
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True, name="agent-call")
        self.thread.start()

    def _run(self) -> None:
        try:
            self._value = self._call()
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            self._error = error
        finally:
            self.done.set()

    def result(self) -> T:
        self.thread.join()
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


def wait_for(
    call: Callable[[], T],
    *,
    leave: Callable[[], bool],
    timeout_s: float | None = None,
    give_up: Callable[[], None] | None = None,
) -> T:
    """The call's result or exception. Raises Interrupted (`leave` said so) or OutOfTime, after `give_up` if given."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    running = _Call(call)
    while not running.done.wait(POLL_S):
        error = _why_leave(leave, deadline)
        if error is None:
            continue
        if give_up is not None:
            give_up()
            running.done.wait(GRACE_S)
        raise error
    return running.result()


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
def leased(device: Device | None, *, clock: Clock, leave: Callable[[], bool]) -> Iterator[float]:
    """Holds the device; gives the seconds that were waited for it, which do not count on the clock."""
    if device is None:
        yield 0.0
        return
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        with clock.stopped():
            stack.enter_context(device.lease(leave=leave))
        yield time.monotonic() - began


def _why_leave(leave: Callable[[], bool], deadline: float | None) -> Exception | None:
    if leave():
        return Interrupted()
    if deadline is not None and time.monotonic() >= deadline:
        return OutOfTime()
    return None

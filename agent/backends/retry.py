"""Asking again: what a failed request was, how long to wait, and how to stop waiting at once.

One retry loop for all servers: the SDK's own retries are off, so that attempts and waits are counted once.
"""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Final, Generic, TypeVar

from agent.errors import BackendError, BackendErrorKind

T = TypeVar("T")
CancelHook = Callable[[], bool]

FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 60.0
_POLL_S: Final = 0.1


class ChatCancelled(Exception):
    """Somebody asked to leave while a reply or a retry was waited for; nothing was answered."""


@dataclass(frozen=True)
class Failure:
    """One failed request. `attempt_limit` 1: asking again is useless; None: the configured bound holds."""

    kind: BackendErrorKind
    message: str
    hint: str = ""
    attempt_limit: int | None = None
    retry_after_s: float | None = None


class RequestFailed(Exception):
    """Carries a Failure from the request to the retry loop."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True)
class Answer(Generic[T]):
    """A request that succeeded in the end: `latency_s` is its own time, `waited_s` all that came before it."""

    value: T
    attempts: int
    latency_s: float
    waited_s: float


@dataclass
class Retrying:
    """Bounds of one turn. `sleep` and `cancelled` are hooks: the first is handed seconds, the second is polled."""

    max_attempts: int
    max_wait_s: float
    cancelled: CancelHook | None = None
    sleep: Callable[[float], None] | None = None
    slept_s: float = field(default=0.0, init=False)

    def run(self, request: Callable[[], T]) -> Answer[T]:
        """Raises BackendError when attempts or waiting time are used up, ChatCancelled when `cancelled` says so."""
        begun = time.monotonic()
        attempt = 0
        while True:
            attempt += 1
            started = time.monotonic()
            try:
                value = call_cancellable(request, cancelled=self.cancelled)
            except RequestFailed as error:
                self._wait(self._pause_s(error.failure, attempt))
            else:
                return Answer(value, attempt, time.monotonic() - started, started - begun)

    def _pause_s(self, failure: Failure, attempt: int) -> float:
        limit = min(self.max_attempts, failure.attempt_limit or self.max_attempts)
        left = self.max_wait_s - self.slept_s
        asked = failure.retry_after_s
        if attempt >= limit:
            raise _give_up(failure, attempt, self.slept_s)
        if asked is not None and asked > left:
            hint = f"the server asks to wait {asked:.0f} s more, backend.max_wait_s allows {self.max_wait_s:.0f} s"
            raise _give_up(failure, attempt, self.slept_s, hint=hint)
        if left <= 0 and asked is None:
            raise _give_up(failure, attempt, self.slept_s)
        return min(left, backoff_s(attempt) if asked is None else asked + random.uniform(0, 0.25))

    def _wait(self, seconds: float) -> None:
        self.slept_s += seconds
        if self.sleep is not None:
            self.sleep(seconds)
        else:
            wait(seconds, cancelled=self.cancelled)


def _give_up(failure: Failure, attempts: int, slept_s: float, *, hint: str = "") -> BackendError:
    tried = f" after {attempts} attempts, {slept_s:.0f} s of waiting" if attempts > 1 else ""
    return BackendError(failure.message + tried, kind=failure.kind, hint=hint or failure.hint)


def backoff_s(attempt: int) -> float:
    """Exponential from FIRST_WAIT_S to LONGEST_WAIT_S; jitter takes up to half of it off."""
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(attempt - 1, 16)) * random.uniform(0.5, 1.0)


def retry_after_s(value: str | None, *, milliseconds: str | None = None, now: float | None = None) -> float | None:
    """Seconds from a Retry-After header (a number of seconds or an HTTP date) or retry-after-ms; None if unusable."""
    for text, scale in ((milliseconds, 1e-3), (value, 1.0)):
        try:
            seconds = float(text or "nan") * scale
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        moment = parsedate_to_datetime(value or "").timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, moment - (time.time() if now is None else now))


def wait(seconds: float, *, cancelled: CancelHook | None = None) -> None:
    """Sleeps in short slices. Raises ChatCancelled soon after `cancelled` turns true."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if cancelled is not None and cancelled():
            raise ChatCancelled
        time.sleep(min(left, _POLL_S))


def call_cancellable(work: Callable[[], T], *, cancelled: CancelHook | None) -> T:
    """`work()`; with a hook it runs in a daemon thread, which is left behind (until its timeout) on ChatCancelled."""
    if cancelled is None:
        return work()
    box = _Box(work)
    thread = threading.Thread(target=box.run, name="backend-request", daemon=True)
    thread.start()
    while not box.done.wait(_POLL_S):
        if cancelled():
            raise ChatCancelled
    return box.result()


class _Box(Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._values: list[T] = []
        self._error: BaseException | None = None
        self.done = threading.Event()

    def run(self) -> None:
        try:
            self._values.append(self._work())
        except BaseException as error:  # noqa: BLE001 - handed to the waiting thread
            self._error = error
        self.done.set()

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._values[0]

"""Times of one call, in a stretch in which all other candidates stand still.

Covers: page faults of the first calls (left out), single slow calls (least and median are told), the compilers of other
lanes: beside them a call on all cores took 1.6 to 2.5 times as long, and of 200 tasks kept for 1 ms and more 49 were
faster on an idle machine. Does not cover: other work on the machine: between a busy hour and a busier one the median of
the same tasks grew 1.2 to 15 times, the least 1 to 7 times. Filters go by the least and use a wide band.
"""

import contextlib
import fcntl
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from admission.lanes import Options

CALLS: Final = 7
ENOUGH_S: Final = 0.1


@dataclass(frozen=True)
class Times:
    """Of several calls after the first, in milliseconds."""

    median_ms: float
    least_ms: float


def eager(call: Callable[[], Any], options: Options) -> Times:
    """With all cores. A call that takes several times the limit is not repeated."""
    with _alone(options) as hold:
        hold()
        first = _once(call, options)
        if first > 5 * options.high_ms:
            return Times(first, first)
        return _repeated(call, options, hold)


def again(call: Callable[[], Any], options: Options) -> Times:
    """The same for something that has run already."""
    with _alone(options) as hold:
        hold()
        _once(call, options)
        return _repeated(call, options, hold)


def _repeated(call: Callable[[], Any], options: Options, hold: Callable[[], None]) -> Times:
    times: list[float] = []
    until = time.monotonic() + ENOUGH_S
    while len(times) < 2 or (len(times) < CALLS and time.monotonic() < until):
        hold()
        times.append(_once(call, options))
    return Times(statistics.median(times), min(times))


def _once(call: Callable[[], Any], options: Options) -> float:
    _settled(options)
    started = time.perf_counter()
    call()
    _settled(options)
    return (time.perf_counter() - started) * 1e3


def _settled(options: Options) -> None:
    if options.target == "cuda":
        torch.cuda.synchronize()


@contextmanager
def _alone(options: Options) -> Iterator[Callable[[], None]]:
    """Gives what makes other lanes stand still, those too that have begun since it was last called."""
    threads = torch.get_num_threads()
    stopped: set[int] = set()

    def hold() -> None:
        if options.lanes > 1:
            fresh = _other_lanes() - stopped
            _tell(fresh, signal.SIGSTOP)
            stopped.update(fresh)

    with (Path(options.scratch) / "timing.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        torch.set_num_threads(options.threads)
        try:
            yield hold
        finally:
            _tell(stopped, signal.SIGCONT)
            torch.set_num_threads(threads)


def _other_lanes() -> set[int]:
    """Sessions of the candidates beside this one. Should this process die, its parent lets them go on."""
    parent = os.getppid()
    try:
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split()
    except OSError:
        return set()
    return {int(child) for child in children} - {os.getpid()}


def _tell(lanes: Iterable[int], number: int) -> None:
    for lane in lanes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(lane, number)

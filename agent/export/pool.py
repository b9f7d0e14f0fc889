"""Work spread over processes with its results in order, and never more of it under way than fits in memory."""

import gc
import itertools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Final, TypeVar

from agent.errors import AgentError

AHEAD_PER_JOB: Final = 2
GC_THRESHOLD: Final = 50_000
Item = TypeVar("Item")
Result = TypeVar("Result")


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of `size` items, the last one shorter."""
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, size)):
        yield batch


def ordered_map(function: Callable[[Item], Result], items: Iterable[Item], *, jobs: int) -> Iterator[Result]:
    """`function` of each item, in order. One job, or a single item: in this process.

    Raises AgentError where a worker was killed (for memory, most likely).
    """
    iterator = iter(items)
    first = list(itertools.islice(iterator, 2))
    if jobs <= 1 or len(first) < 2:
        for item in itertools.chain(first, iterator):
            yield function(item)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin)
    try:
        yield from _in_order(pool, function, itertools.chain(first, iterator), jobs)
    except BrokenProcessPool:
        raise AgentError("a worker process was killed", hint="less memory is used with --jobs 1") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _in_order(
    pool: ProcessPoolExecutor, function: Callable[[Item], Result], items: Iterator[Item], jobs: int
) -> Iterator[Result]:
    waiting: deque[Future[Result]] = deque()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) >= AHEAD_PER_JOB * jobs:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _begin() -> None:
    """^C is the parent's to handle: it ends the workers. What an episode leaves is no cycle: collect rarely."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(GC_THRESHOLD, 20, 20)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that was killed cannot end its workers, which would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)

"""The device that environments share by default: one measurement at a time in this process."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Final

from agent.loop.waiting import Interrupted

POLL_S: Final = 0.2


class OneAtATime:
    """Covers measurements of this process only; for several processes or GPUs give the environments another Device."""

    def __init__(self) -> None:
        self._free = threading.Lock()

    @contextlib.contextmanager
    def lease(self, *, leave: Callable[[], bool]) -> Iterator[None]:
        while not self._free.acquire(timeout=POLL_S):
            if leave():
                raise Interrupted
        try:
            yield
        finally:
            self._free.release()


SHARED: Final = OneAtATime()

"""Locks between processes: a file that one of them holds, and that the kernel frees however that process ends.

Covers: processes and threads of one machine, kill -9 included. Not covered: a shared file system whose flock does not
reach other machines.
"""

import contextlib
import fcntl
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FOREVER: Final = math.inf
POLL_S: Final = 0.25


@contextlib.contextmanager
def locked(path: Path, *, patience_s: float = 0.0) -> Iterator[int | None]:
    """Alone with `path`, which is made: its descriptor; None where somebody still holds it after `patience_s`.

    Raises OSError where the file cannot be opened.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        yield fd if _acquired(fd, patience_s) else None
    finally:
        os.close(fd)


def _acquired(fd: int, patience_s: float) -> bool:
    if patience_s == FOREVER:
        fcntl.flock(fd, fcntl.LOCK_EX)
        return True
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(min(POLL_S, max(0.0, deadline - time.monotonic())))
        else:
            return True

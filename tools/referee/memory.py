"""Reads and writes another process's memory through a descriptor on /proc/PID/mem that was opened while it was still
harmless.
"""

import os
from typing import Final

CHUNK: Final = 1 << 30


class Unreadable(Exception):
    """The address range is not mapped (any more)."""


def open_memory(pid: int) -> int:
    """The access check happens here, once: later the process may stop being dumpable, for others and for itself."""
    return os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)


def read(descriptor: int, *, address: int, count: int) -> bytearray:
    """`count` bytes."""
    raw = bytearray(count)
    view = memoryview(raw)
    at = 0
    while at < count:
        try:
            got = os.preadv(descriptor, [view[at : at + CHUNK]], address + at)
        except (OSError, OverflowError) as error:
            raise Unreadable(f"{count} bytes at {address:#x}") from error
        if not got:
            raise Unreadable(f"{count} bytes at {address:#x}")
        at += got
    return raw


def write(descriptor: int, *, address: int, data: memoryview) -> None:
    at = 0
    while at < len(data):
        try:
            put = os.pwrite(descriptor, data[at : at + CHUNK], address + at)
        except (OSError, OverflowError) as error:
            raise Unreadable(f"{len(data)} bytes at {address:#x}") from error
        if not put:
            raise Unreadable(f"{len(data)} bytes at {address:#x}")
        at += put

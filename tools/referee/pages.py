"""Which parts of torch's compute library a process has executed, seen from outside: its own page table says so.

A worker lets go of the library's code pages (they come back one by one, when they are executed); afterwards the pages
present are those that ran. Covers operators called from any language, thread or hidden door, as long as the code is
the library's own mapping. Does not cover a private copy of the library's code, nor naming the function: the count of
places beyond those that allocation and views need is judged.
"""

import ctypes
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

LIBRARIES: Final = (
    "libtorch_cpu", "libtorch_cuda", "libmkl", "libdnnl", "libopenblas", "libscipy_openblas", "libblas",
    "libcblas", "liblapack", "_multiarray_umath", "_umath_linalg", "_pocketfft",
)  # fmt: skip
MADV_DONTNEED: Final = 4
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
PLACE: Final = 65536  # the kernel maps code around a fault in stretches of this size
ENTRY: Final = 8

Span = tuple[int, int]


def spans_in(mappings: str) -> list[Span]:
    """Executable mappings of the libraries, from the text of a /proc/PID/maps."""
    found = []
    for line in mappings.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and "x" in fields[1] and Path(fields[5]).name.startswith(LIBRARIES):
            low, high = (int(part, 16) for part in fields[0].split("-"))
            found.append((low, high))
    return found


def let_go() -> None:
    """Drop this process's own mapping entries of the libraries' code; the code itself stays where it is."""
    libc = ctypes.CDLL(None, use_errno=True)
    for low, high in spans_in(Path("/proc/self/maps").read_text()):
        libc.madvise(ctypes.c_void_p(low), ctypes.c_size_t(high - low), MADV_DONTNEED)


def open_table(pid: int) -> int | None:
    """Opened while the process is harmless, like its memory; None where this kernel has no such table."""
    with suppress(OSError):
        return os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    return None


def places(table: int, *, spans: list[Span]) -> set[int]:
    """Addresses, in units of PLACE, where code is present."""
    found: set[int] = set()
    for low, high in spans:
        count = (high - low) // PAGE
        data = b""
        while len(data) < count * ENTRY:
            part = os.pread(table, count * ENTRY - len(data), low // PAGE * ENTRY + len(data))
            if not part:
                break
            data += part
        # Bit 63 of an entry, the top bit of its last byte (little endian), says present.
        found.update((low + at * PAGE) // PLACE for at in range(len(data) // ENTRY) if data[at * ENTRY + 7] & 0x80)
    return found

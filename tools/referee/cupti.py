"""CUPTI's first use in a process, made before there is anything to profile.

Only to save time: seconds that torch's profiler would spend on it inside a verification. Nothing relies on it.
"""

import contextlib
import ctypes
from pathlib import Path
from typing import Final

import torch

CONCURRENT_KERNEL: Final = 10  # CUpti_ActivityKind, cupti_activity.h


def prime() -> None:
    """Switch the recording of kernels on, launch one, switch it off again. Never raises."""
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    places = {line.split()[-1] for line in mapped.splitlines() if "/libcupti.so" in line}
    for place in places:
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(place)
            library.cuptiActivityEnable(CONCURRENT_KERNEL)
            torch.zeros(1, device="cuda")
            torch.cuda.synchronize()
            library.cuptiActivityFlushAll(0)
            library.cuptiActivityDisable(CONCURRENT_KERNEL)

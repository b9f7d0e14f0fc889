"""What the referee can do with a stopped worker's memory; how, for host and device memory, stands in stores.py.

Without torch: the template process is started before this one has imported it.
"""

import os
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

# (base address, bytes, IPC handle in hexadecimal) of an allocation in device memory, as its owner names it.
Segment = tuple[int, int, str]


class Unreadable(Exception):
    """The address range is not mapped (any more)."""


class Memory(Protocol):
    """Where a worker's tensors lie. Contents are one-dimensional uint8 tensors; what `read` returns is a copy."""

    def learn(self, segments: Any, *, complete: bool = False) -> None: ...
    def read(self, address: int, count: int) -> "torch.Tensor": ...
    def write(self, address: int, data: "torch.Tensor") -> None: ...
    def flush(self) -> None: ...


def open_memory(pid: int) -> int:
    """A descriptor on /proc/PID/mem. The access check happens here, once: later the process may stop being dumpable,
    for others and for itself.
    """
    return os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)

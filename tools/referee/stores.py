"""A stopped worker's memory: host memory through /proc/PID/mem, device memory through IPC handles."""

import bisect
import ctypes
import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import torch

from referee import cuda_driver
from referee.memory import Segment, Unreadable

CHUNK: Final = 1 << 30


class HostMemory:
    """Another process's memory through a descriptor that was opened while it was still harmless."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def learn(self, segments: Any, *, complete: bool = False) -> None:
        """Host memory needs no handles."""

    def read(self, address: int, count: int) -> torch.Tensor:
        if not count:
            return torch.empty(0, dtype=torch.uint8)
        raw = bytearray(count)
        view = memoryview(raw)
        at = 0
        while at < count:
            try:
                got = os.preadv(self._descriptor, [view[at : at + CHUNK]], address + at)
            except (OSError, OverflowError) as error:
                raise Unreadable(f"{count} bytes at {address:#x}") from error
            if not got:
                raise Unreadable(f"{count} bytes at {address:#x}")
            at += got
        return torch.frombuffer(raw, dtype=torch.uint8)

    def write(self, address: int, data: torch.Tensor) -> None:
        view = _buffer_of(data)
        at = 0
        while at < len(view):
            try:
                put = os.pwrite(self._descriptor, view[at : at + CHUNK], address + at)
            except (OSError, OverflowError) as error:
                raise Unreadable(f"{len(view)} bytes at {address:#x}") from error
            if not put:
                raise Unreadable(f"{len(view)} bytes at {address:#x}")
            at += put

    def flush(self) -> None:
        """Every write is done when it returns."""


def _buffer_of(data: torch.Tensor) -> memoryview:
    """The tensor's bytes without a copy; valid while the tensor lives."""
    assert data.is_contiguous() and data.dtype is torch.uint8
    count = data.numel()
    return memoryview((ctypes.c_char * count).from_address(data.data_ptr())).cast("B") if count else memoryview(b"")


class DeviceMemory:
    """Another process's device memory, allocation by allocation, mapped into this process.

    A handle that the worker makes up opens nothing, or another process's memory: outputs of trusted workers are
    overwritten as soon as they are read (see `timing`). A size is believed only as far as the driver confirms it.
    """

    def __init__(self) -> None:
        self._segments: dict[int, tuple[int, str, int, torch.Tensor]] = {}  # base: bytes, handle, where, view
        self._bases: list[int] = []

    def learn(self, segments: Any, *, complete: bool = False) -> None:
        """Map what is new; a base whose handle has changed is another allocation than before. What is missing from a
        complete list has been given back: a mapping would keep the device's memory in use.
        """
        told = list(_checked(segments))
        if complete:
            for base in self._segments.keys() - {base for base, _, _ in told}:
                self._forget(base)
        for base, size, handle in told:
            known = self._segments.get(base)
            if known is None or known[:2] != (size, handle):
                self._forget(base)
                self._segments[base] = (size, handle, *_mapped(size, handle))
        self._bases = sorted(self._segments)

    def _forget(self, base: int) -> None:
        known = self._segments.pop(base, None)
        if known is not None:
            with suppress(cuda_driver.CudaError):
                cuda_driver.close_handle(known[2])

    def spans(self) -> list[tuple[int, int]]:
        """All allocations that the worker has named."""
        return [(base, base + self._segments[base][0]) for base in self._bases]

    def part(self, address: int, count: int) -> torch.Tensor:
        """The worker's own bytes, not a copy."""
        at = bisect.bisect_right(self._bases, address) - 1
        if at >= 0:
            base = self._bases[at]
            size, _, _, view = self._segments[base]
            if address + count <= base + size:
                return view[address - base : address - base + count]
        raise Unreadable(f"{count} bytes of device memory at {address:#x}")

    def read(self, address: int, count: int) -> torch.Tensor:
        return self.part(address, count).clone() if count else torch.empty(0, dtype=torch.uint8, device="cuda")

    def write(self, address: int, data: torch.Tensor) -> None:
        if data.numel():
            self.part(address, data.numel()).copy_(data)

    def flush(self) -> None:
        torch.cuda.synchronize()


def _mapped(size: int, handle: str) -> tuple[int, torch.Tensor]:
    """Where this process sees the allocation, and a view of it that does not reach beyond."""
    try:
        where = cuda_driver.open_handle(bytes.fromhex(handle))
    except (cuda_driver.CudaError, ValueError) as error:
        raise Unreadable(f"an allocation of {size} bytes of device memory: {error}") from error
    base, count = where, size
    with suppress(cuda_driver.CudaError):  # a driver that does not tell
        base, count = cuda_driver.allocation_of(where)
    if base != where or count < size:
        cuda_driver.close_handle(where)
        raise Unreadable(f"an allocation of {size} bytes of device memory has {count}")
    return where, cuda_driver.view(where, size)


def _checked(segments: Any) -> Iterable[Segment]:
    """What a worker says about its allocations, one by one."""
    if not isinstance(segments, list):
        return
    for entry in segments:
        match entry:
            case [int(base), int(size), str(handle)] if base > 0 and 0 < size < 1 << 42:
                yield base, size, handle
            case _:
                raise Unreadable("an allocation of device memory is described by something else")

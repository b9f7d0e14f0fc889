"""A worker's side of shared device memory: it names the allocations in which its tensors lie, so that the referee can
map them.

Outside the clock everything that torch's allocator holds is named afresh; inside, after a batch, only what has come
since. Tensors in memory that cannot be shared (host memory, managed memory, pools of one's own) get no handle, and the
referee rejects outputs there.
"""

import array

import torch

from referee import cuda_driver

Segments = list[list[int | str]]


class Announcer:
    """Allocations that this process has named to the referee."""

    def __init__(self) -> None:
        self._starts = torch.empty(0, dtype=torch.int64, device="cpu")
        self._ends = torch.empty(0, dtype=torch.int64, device="cpu")

    def everything(self) -> Segments:
        """All allocations of torch's caching allocator, with handles of this moment."""
        found: Segments = []
        for segment in torch.cuda.memory_snapshot():
            base, size = int(segment["address"]), int(segment["total_size"])
            handle = _handle(base)
            if handle:
                found.append([base, size, handle])
        self._remember(found)
        return found

    def missing(self, pointers: "array.array[int]") -> Segments:
        """Allocations of these addresses that have not been named yet."""
        found: Segments = []
        reach = 0
        for pointer in sorted(set(self._unnamed(pointers))):
            if pointer < reach or not pointer:
                continue
            try:
                base, size = cuda_driver.allocation_of(pointer)
            except cuda_driver.CudaError:  # no device memory: the referee will not find it
                continue
            reach = base + size
            handle = _handle(base)
            if handle:
                found.append([base, size, handle])
        return found

    def _unnamed(self, pointers: "array.array[int]") -> list[int]:
        """By one search for all: 12 us for 74 addresses and 24 us for 2,000, a loop 18 and 670 (measured on a CPU)."""
        if not pointers:
            return []
        asked = torch.frombuffer(pointers, dtype=torch.int64)
        if len(self._starts):
            place = torch.searchsorted(self._starts, asked, right=True) - 1
            asked = asked[(place < 0) | (asked >= self._ends[place.clamp_(min=0)])]
        return list(asked.tolist())

    def _remember(self, segments: Segments) -> None:
        spans = sorted((int(base), int(base) + int(size)) for base, size, _ in segments)
        self._starts = torch.tensor([low for low, _ in spans], dtype=torch.int64, device="cpu")
        self._ends = torch.tensor([high for _, high in spans], dtype=torch.int64, device="cpu")


def _handle(base: int) -> str:
    try:
        return cuda_driver.export(base).hex()
    except cuda_driver.CudaError:
        return ""

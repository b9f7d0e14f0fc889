"""A worker's side of shared device memory: it names the allocations in which its tensors lie, so that the referee can
map them.

Outside the clock everything that torch's allocator holds is named afresh; inside, after a batch, only what has come
since. Tensors in memory that cannot be shared (host memory, managed memory, pools of one's own) get no handle, and the
referee rejects outputs there.
"""

import array
import bisect
from collections.abc import Iterable
from typing import Final

import torch

from referee import cuda_driver

MANY: Final = 300  # addresses from which on one call into torch is quicker than a loop
Segments = list[list[int | str]]


class Announcer:
    """Allocations that this process has named to the referee."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []
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
        asked = self._unnamed_of_many(pointers) if len(pointers) > MANY else self._unnamed(pointers)
        found: Segments = []
        reach = 0
        for pointer in sorted(set(asked)):
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

    def _unnamed(self, pointers: Iterable[int]) -> list[int]:
        low = high = 0
        found = []
        for pointer in pointers:
            if low <= pointer < high:
                continue
            at = bisect.bisect_right(self._spans, (pointer, 1 << 64)) - 1
            low, high = self._spans[at] if at >= 0 else (0, 0)
            if not low <= pointer < high:
                found.append(pointer)
        return found

    def _unnamed_of_many(self, pointers: "array.array[int]") -> list[int]:
        asked = torch.frombuffer(pointers, dtype=torch.int64)
        if len(self._starts):
            place = torch.searchsorted(self._starts, asked, right=True) - 1
            asked = asked[(place < 0) | (asked >= self._ends[place.clamp_(min=0)])]
        return list(asked.tolist())

    def _remember(self, segments: Segments) -> None:
        spans = sorted((int(base), int(base) + int(size)) for base, size, _ in segments)
        self._spans = spans
        self._starts = torch.tensor([low for low, _ in spans], dtype=torch.int64, device="cpu")
        self._ends = torch.tensor([high for _, high in spans], dtype=torch.int64, device="cpu")


def _handle(base: int) -> str:
    try:
        return cuda_driver.export(base).hex()
    except cuda_driver.CudaError:
        return ""

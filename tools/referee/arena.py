"""Tensors in anonymous memory that the referee shares with its trusted reference worker; a submission's worker never
gets one.
"""

import mmap
import os
from typing import Any, Final

import torch

from referee import tree

ALIGN: Final = 64


def raw_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The storage between first and last element as uint8, without a copy."""
    layout = tree.layout_of(tensor)
    if not layout["bytes"]:
        return torch.empty(0, dtype=torch.uint8)
    start = tensor.storage_offset() * tensor.element_size()
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage(), start, (layout["bytes"],), (1,))


def pack(tensors: list[torch.Tensor]) -> tuple[int, list[int]]:
    """A descriptor that holds all tensors' bytes, and where each begins."""
    offsets, at = [], 0
    for tensor in tensors:
        offsets.append(at)
        at += -(-tree.layout_of(tensor)["bytes"] // ALIGN) * ALIGN
    descriptor = os.memfd_create("arena", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, max(at, 1))
    whole = torch.frombuffer(mmap.mmap(descriptor, max(at, 1)), dtype=torch.uint8)
    for tensor, offset in zip(tensors, offsets, strict=True):
        source = raw_bytes(tensor)
        whole[offset : offset + source.numel()].copy_(source)
    return descriptor, offsets


class Arena:
    """A packed descriptor, mapped."""

    def __init__(self, descriptor: int, *, offsets: list[int]) -> None:
        self.offsets = offsets
        size = os.fstat(descriptor).st_size
        self._map = mmap.mmap(descriptor, size)
        self.descriptor = descriptor
        self.bytes = torch.frombuffer(self._map, dtype=torch.uint8)

    def __del__(self) -> None:
        os.close(self.descriptor)

    def memory(self, index: int, *, count: int) -> memoryview:
        start = self.offsets[index]
        return memoryview(self._map)[start : start + count]

    def tensor(self, index: int, *, layout: dict[str, Any]) -> torch.Tensor:
        start = self.offsets[index]
        return tree.view_as(self.bytes[start : start + layout["bytes"]], layout)

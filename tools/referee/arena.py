"""Tensors in memory that the referee shares with its trusted reference worker; a submission's worker never gets one.

Host memory travels as a descriptor on anonymous memory. Device memory stays with the worker that packed it, and the
referee takes a copy at once.
"""

import mmap
import os
from typing import Any, Final

import torch

from referee import protocol, tree

ALIGN: Final = 256


def raw_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The storage between first and last element as uint8, without a copy."""
    layout = tree.layout_of(tensor)
    if not layout["bytes"]:
        return torch.empty(0, dtype=torch.uint8, device=tensor.device)
    start = tensor.storage_offset() * tensor.element_size()
    raw = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return raw.set_(tensor.untyped_storage(), start, (layout["bytes"],), (1,))


def offsets_of(tensors: list[torch.Tensor]) -> tuple[list[int], int]:
    """Where each tensor begins when they are packed, and the bytes of all."""
    offsets, at = [], 0
    for tensor in tensors:
        offsets.append(at)
        at += -(-tree.layout_of(tensor)["bytes"] // ALIGN) * ALIGN
    return offsets, max(at, 1)


def pack(tensors: list[torch.Tensor]) -> tuple[int, list[int]]:
    """A descriptor that holds all tensors' bytes, and where each begins."""
    offsets, size = offsets_of(tensors)
    descriptor = os.memfd_create("arena", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, size)
    _fill(torch.frombuffer(mmap.mmap(descriptor, size), dtype=torch.uint8), tensors, offsets)
    return descriptor, offsets


def pack_for_referee(tensors: list[torch.Tensor]) -> tuple[protocol.Message, tuple[int, ...]]:
    """The same as fields and descriptors of a message."""
    descriptor, offsets = pack(tensors)
    return {"offsets": offsets}, (descriptor,)


def pack_on_device(tensors: list[torch.Tensor]) -> tuple[torch.Tensor, list[int]]:
    """The same in device memory, which the caller keeps until the referee has asked for something else."""
    offsets, size = offsets_of(tensors)
    whole = torch.empty(size, dtype=torch.uint8, device="cuda")
    _fill(whole, tensors, offsets)
    torch.cuda.synchronize()
    return whole, offsets


def _fill(whole: torch.Tensor, tensors: list[torch.Tensor], offsets: list[int]) -> None:
    for tensor, offset in zip(tensors, offsets, strict=True):
        source = raw_bytes(tensor)
        whole[offset : offset + source.numel()].copy_(source)


class Arena:
    """Packed bytes as the referee has them."""

    def __init__(self, whole: torch.Tensor, *, offsets: list[int]) -> None:
        self.offsets = offsets
        self.bytes = whole

    @classmethod
    def received(cls, worker: Any, reply: protocol.Received) -> "Arena":
        """From a trusted worker's answer: mapped from its descriptor, or copied from its device memory."""
        offsets = reply.fields["offsets"]
        if not reply.descriptors:
            worker.store.learn(reply.fields["segments"], complete=True)
            whole = worker.store.read(reply.fields["packed"], reply.fields["packed_bytes"])
            worker.store.flush()
            return cls(whole, offsets=offsets)
        descriptor = reply.descriptors[0]
        try:
            mapped = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)
        return cls(torch.frombuffer(mapped, dtype=torch.uint8), offsets=offsets)

    def part(self, index: int, *, count: int) -> torch.Tensor:
        start = self.offsets[index]
        return self.bytes[start : start + count]

    def tensor(self, index: int, *, layout: dict[str, Any]) -> torch.Tensor:
        return tree.view_as(self.part(index, count=layout["bytes"]), layout)

"""A forward that does everything policy `strict` allows and nothing else: the yardstick for what code of torch that
needs.
"""

import sys
from typing import Any

import torch

from referee import tree


class Allowed(torch.nn.Module):  # type: ignore[misc] # torch is not typed here
    """Has buffers with the state_dict's names, so that the protocol treats it like any other module."""

    def __init__(self, state: list[tuple[str, tree.Spec]]) -> None:
        super().__init__()
        self._values = {
            name: torch.empty(layout["shape"], dtype=tree.DTYPES[layout["dtype"]]) for name, layout in state
        }

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        return dict(self._values)

    def forward(self, *inputs: Any) -> torch.Tensor:
        leaves = [*tree.leaves_of(inputs), *self._values.values()]
        for leaf in leaves:
            _look(leaf)
        for dtype in (
            torch.float32,
            torch.float64,
            torch.float16,
            torch.bfloat16,
            torch.int64,
            torch.int32,
            torch.uint8,
            torch.bool,
        ):
            _allocate(dtype)
        _count(leaves[0] if leaves else torch.empty(2, 3))
        return torch.empty(8)


def _allocate(dtype: torch.dtype) -> None:
    made = torch.empty(4, 6, dtype=dtype)
    for other in (
        torch.empty_like(made), torch.empty_strided((4, 6), (1, 4), dtype=dtype), made.new_empty(3),
        made.new_empty_strided((2,), (1,)),
        torch.zeros(5000, dtype=dtype), torch.zeros_like(made), made.new_zeros(3), torch.ones(5000, dtype=dtype),
        torch.ones_like(made),
        made.new_ones(3), torch.full((5000,), 1, dtype=dtype), torch.full_like(made, 1), made.new_full((3,), 1),
        torch.tensor([1], dtype=dtype),
    ):  # fmt: skip
        other.zero_()
        other.fill_(1)
    torch.empty(300_000, dtype=dtype).zero_()
    torch.empty(300_000, dtype=dtype).fill_(1)
    torch.empty(1, dtype=dtype).item()
    torch.empty(4, 6, dtype=dtype, memory_format=torch.contiguous_format).resize_(6, 4)
    torch.empty(2, 3, 4, 5, dtype=dtype, memory_format=torch.channels_last)


def _count(leaf: torch.Tensor) -> None:
    """Sizes by NumPy, where there is one: its scalars and small reductions of shapes compute no output."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return
    shape = (*leaf.shape, 2, 3)
    for size in (numpy.prod(shape), numpy.sum(shape), numpy.max(shape), numpy.min(shape), numpy.cumsum(shape)[-1]):
        int(size), float(size), numpy.ceil(size / 64), numpy.floor(size / 64), numpy.sqrt(float(size))
    numpy.asarray(shape) // 2, numpy.array(shape) * 4 + 1, numpy.float32(1.5) * numpy.float32(2.0), numpy.int64(7) // 2
    numpy.float64(2.0) ** 0.5, numpy.exp(1.0), numpy.finfo(numpy.float32).eps
    numpy.arange(4), numpy.zeros(4), numpy.empty(4)
    if leaf.device.type == "cpu" and leaf.dtype in (torch.float32, torch.float64, torch.int32, torch.int64):
        leaf.detach().numpy().shape, leaf.detach().numpy().ctypes.data


def _look(leaf: torch.Tensor) -> None:
    leaf.detach().contiguous().flatten()
    flat = leaf.detach().reshape(-1) if leaf.is_contiguous() else leaf
    flat.numel(), flat.stride(), flat.size(), flat.storage_offset(), flat.data_ptr(), flat.is_contiguous()
    flat.unsqueeze(0).squeeze(0).squeeze()
    flat.expand_as(flat).view_as(flat)
    flat.as_strided((), ())
    if not flat.dim():
        return
    flat[None], flat[...], flat[:1], flat.narrow(0, 0, 0), flat.t() if flat.dim() == 2 else flat.transpose(0, -1)
    flat.unflatten(0, (flat.shape[0], 1)), flat.movedim(0, -1), flat.permute(*reversed(range(flat.dim())))
    flat.split(max(1, flat.shape[0])), flat.chunk(1), flat.unfold(0, 1, 1) if flat.shape[0] else flat
    if 0 < flat.shape[0] <= 64:
        flat.unbind()
        flat.select(0, 0).unsqueeze(0).expand(3, *flat.shape[1:])
        flat[0], flat.diagonal() if flat.dim() > 1 else flat
    if flat.dtype in (torch.float32, torch.int32):
        flat.view(torch.uint8 if flat.dim() == 1 else flat.dtype)

"""Whether parts of an output were left out that hardly count in the whole: rows that decay, the end of rough integers.

Errors are related to a row and to the whole (numerics.py), because rows that cancel have no size of their own; rows
that are small for another reason could then be left out, and an allowed share of integers could all lie in one place.
Here every index of every dimension is a slice, and the reference's own error in it is its measure: where values cancel
that is large as well. Values: the RMS error may be FACTOR times the reference's, or OF_SIZE of the slice's RMS.
Integers: less than half of them may be wrong where the reference and noisy inputs agree with float64. A few slices may
be off.
Does not cover: what is left out in no direction of its own; half-precision outputs, whose rounding hides it.
"""

from collections.abc import Callable
from typing import Final

import torch

from referee.sizes import are_values

FACTOR: Final = 64.0
OF_SIZE: Final = 2.0**-10
HIDING_EPSILON: Final = 2.0**-13  # dtypes with a coarser one are not looked at
FEWEST: Final = 8  # slices of a dimension
LEAST: Final = 16  # elements of a slice
SHARE: Final = 0.05
INTEGERS: Final = 0.01
BLOCK: Final = 1 << 20
DEVICE_BLOCK: Final = 1 << 25


def neglected(
    output: torch.Tensor, *, truth: torch.Tensor, reference: torch.Tensor, noisy: torch.Tensor | None = None
) -> str:
    """What is wrong, empty where nothing is. Shapes are equal; `noisy` are integers of noisy inputs."""
    values = are_values(output.dtype)
    if values and torch.finfo(output.dtype).eps > HIDING_EPSILON:
        return ""
    rough = reference if noisy is None else noisy
    output, truth, reference, rough = (_folded(tensor) for tensor in (output, truth, reference, rough))
    found = _values(output, truth, reference) if values else _integers(output, truth, reference, rough)
    if not found:
        return ""
    dim, bad = found
    return f"{bad:.0%} of the slices along dimension {dim} are wrong, measured by their own size"


def _values(output: torch.Tensor, truth: torch.Tensor, reference: torch.Tensor) -> tuple[int, float] | None:
    def parts(got: torch.Tensor, want: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, ...]:
        wide = torch.complex128 if got.is_complex() else torch.float64
        ours, exact, theirs = got.to(wide), want.to(wide), other.to(wide)
        odd = ~(torch.isfinite(ours) & torch.isfinite(exact) & torch.isfinite(theirs))
        squares = ((ours - exact).abs().square_(), (theirs - exact).abs().square_(), exact.abs().square_())
        return tuple(part.masked_fill_(odd, 0.0) for part in squares)

    tiny = float(torch.finfo(output.dtype).tiny) * 1e3
    for dim, (wrong, own, size) in _summed((output, truth, reference), parts):
        allowed = torch.maximum(FACTOR * own.sqrt(), OF_SIZE * size.sqrt())
        bad = float(((wrong.sqrt() > allowed) & (size.sqrt() > tiny)).double().mean())
        if bad > SHARE:
            return dim, bad
    return None


def _integers(
    output: torch.Tensor, truth: torch.Tensor, reference: torch.Tensor, rough: torch.Tensor
) -> tuple[int, float] | None:
    def parts(
        got: torch.Tensor, want: torch.Tensor, other: torch.Tensor, moved: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        exact = want.to(other.dtype)
        return ((got != other) & (got != exact)).double(), ((other != exact) | (moved != exact)).double()

    for dim, (wrong, own) in _summed((output, truth, reference, rough), parts):
        bad = float(((wrong > 0.5) & (own < 0.1)).double().mean())
        if bad > INTEGERS:
            return dim, bad
    return None


def _folded(tensor: torch.Tensor) -> torch.Tensor:
    """One dimension has no slices: pieces of neighbours take their place."""
    if tensor.dim() != 1:
        return tensor
    whole = tensor.numel() // LEAST * LEAST
    return tensor[:whole].reshape(-1, LEAST)


def _summed(
    tensors: tuple[torch.Tensor, ...], parts: Callable[..., tuple[torch.Tensor, ...]]
) -> list[tuple[int, list[torch.Tensor]]]:
    """Per dimension with slices enough the means of `parts` over each slice; taken in blocks, which bounds memory."""
    output = tensors[0]
    dims = [dim for dim, count in enumerate(output.shape) if count >= FEWEST and output.numel() // count >= LEAST]
    if not dims:
        return []
    step = max(1, (BLOCK if output.device.type == "cpu" else DEVICE_BLOCK) // (output.numel() // output.shape[0]))
    sums: dict[int, list[list[torch.Tensor]]] = {dim: [] for dim in dims}
    for start in range(0, output.shape[0], step):
        block = parts(*(tensor[start : start + step] for tensor in tensors))
        for dim in dims:
            others = [other for other in range(output.dim()) if other != dim]
            sums[dim].append([part.sum(dim=others) for part in block])
    found = []
    for dim in dims:
        joined = torch.cat if dim == 0 else lambda blocks: torch.stack(blocks).sum(dim=0)
        per = output.numel() // output.shape[dim]
        found.append((dim, [joined(list(blocks)) / per for blocks in zip(*sums[dim], strict=True)]))
    return found

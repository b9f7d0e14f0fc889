"""Whether elements were left out that are small beside their neighbours, wherever they lie: what decays away from a
diagonal, for example. Slices (slices.py) find only what lies along a dimension.

Elements are sorted by the power of two of the truth, and each class is measured by the reference's own error in it:
where values cancel it is as large as the values, and nothing is asked of them; where small values are exact, as those
of a product are, they must be there. What differs must be more than SHARE of all elements, so that a formula that is
exact in the absolute only (sigmoid as tanh) may lose its far tail. A few values of a class that cancel must not cover
many that are left out: about as many as the reference has wrong by more than ROUGH may be WRONG. Not covered:
half-precision outputs.
"""

import math
from typing import Final

import torch

from referee.slices import DEVICE_BLOCK, FACTOR, HIDING_EPSILON, OF_SIZE

FEWEST: Final = 64  # elements; fewer have sizes of their own (sizes.py)
SHARE: Final = 0.05
WRONG: Final = 0.5  # of its size
ROUGH: Final = WRONG / FACTOR
SPARE: Final = 32.0
OFFSET: Final = 1100  # of the exponents of float64
CLASSES: Final = 2 * OFFSET
BLOCK: Final = 1 << 18


def neglected(output: torch.Tensor, *, truth: torch.Tensor, reference: torch.Tensor) -> str:
    """What is wrong, empty where nothing is. Shapes are equal."""
    if output.numel() < FEWEST or torch.finfo(output.dtype).eps > HIDING_EPSILON:
        return ""
    count, wrong, own, lost, rough = _classes(output.flatten(), truth.flatten(), reference.flatten())
    # Errors are relative already: within a class the truth's size varies by two at most.
    allowed = torch.maximum(FACTOR**2 * own, OF_SIZE**2 * count)
    smallest = OFFSET + math.frexp(torch.finfo(output.dtype).tiny * 1e3)[1]  # below it kernels flush to zero
    normal = torch.arange(CLASSES, device=count.device) > smallest
    gone = torch.where(wrong > allowed, count, torch.where(lost > 2 * rough + SPARE, lost, 0.0))
    bad = float(gone[normal].sum()) / output.numel()
    return f"{bad:.0%} of the elements are wrong, measured by their own size" if bad > SHARE else ""


def _classes(output: torch.Tensor, truth: torch.Tensor, reference: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Per class the number of elements, the sums of squared relative errors of the output and the reference, how many
    the output has WRONG and the reference ROUGH.
    """
    step = BLOCK if output.device.type == "cpu" else DEVICE_BLOCK
    sums = [torch.zeros(CLASSES, dtype=torch.float64, device=output.device) for _ in range(5)]
    wide = torch.complex128 if output.is_complex() else torch.float64
    for start in range(0, output.numel(), step):
        got, want, other = (tensor[start : start + step].to(wide) for tensor in (output, truth, reference))
        size = want.abs()
        ours, theirs = ((value - want).abs().div_(size).square_() for value in (got, other))
        usable = torch.isfinite(ours) & torch.isfinite(theirs) & (size > 0)
        place = (torch.frexp(size).exponent + OFFSET).clamp_(0, CLASSES - 1)
        place = place.masked_fill_(~usable, 0)
        weights = (usable.double(), ours, theirs, (ours >= WRONG**2).double(), (theirs >= ROUGH**2).double())
        for total, weight in zip(sums, weights, strict=True):
            total += torch.bincount(place, weights=weight.masked_fill(~usable, 0.0), minlength=CLASSES)
    return tuple(sums)

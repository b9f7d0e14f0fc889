"""Whether parts of an output were left out that an error of the whole does not show, measured by what the reference
gets wrong in the same place: slices, powers of two, stretches of integers.

The reference is no such measure where it happens to begin with exact values and any rounding of them would be far off,
as near a pole of tan, nor where a lower precision is declared. There all errors are taken to be smaller, by the least
factor with which rounding alone does not look like a part left out; zeros are found even with the largest of them.
Integers have no such factor: what noisy inputs make differ is known (flips.py), but not what a lower precision does.
"""

from typing import Final

import torch

from referee import binades, flips, slices
from referee.sizes import are_values

ROUGHER: Final = 4.0  # times the error that rounded inputs make: honest kernels round in more places
STEPS: Final = (1.0, 4.0, 16.0, 64.0, 256.0)


def neglected(
    output: torch.Tensor,
    *,
    truth: torch.Tensor,
    reference: torch.Tensor,
    lenient: float = 1.0,
    noisy: torch.Tensor | None = None,
    share: float = 0.0,
) -> str:
    """What is wrong, empty where nothing is. Shapes are equal; errors count `lenient` times less. `noisy` and `share`:
    see flips.py.
    """
    values = are_values(output.dtype)
    if lenient > 1.0:
        if not values:
            return ""
        output = _nearer(output, truth, 1 / lenient)
    if found := slices.neglected(output, truth=truth, reference=reference, noisy=noisy):
        return found
    if values:
        return binades.neglected(output, truth=truth, reference=reference)
    return flips.unlike_rounding(output, truth=truth, reference=reference, noisy=noisy, share=share)


def leniency(rounded: torch.Tensor, *, truth: torch.Tensor, reference: torch.Tensor) -> float:
    """With which factor an output passes that is right but for rounding, if with any."""
    if are_values(rounded.dtype):
        rounded = _nearer(rounded, truth, ROUGHER)
    fine = (step for step in STEPS if not neglected(rounded, truth=truth, reference=reference, lenient=step))
    return next(fine, STEPS[-1])


def _nearer(output: torch.Tensor, truth: torch.Tensor, factor: float) -> torch.Tensor:
    moved = torch.where(output == truth, truth, truth + factor * (output.to(truth.dtype) - truth))
    return moved.to(output.dtype)

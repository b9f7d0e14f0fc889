"""What the errors of outputs of few elements are related to.

Such an output is a sum over many inputs. By cancellation it may be near zero by chance, and an error that is honest is
then many times the output's own size; it is related to how far half a unit in the last place of inputs and weights
moves it. Where that moves it hardly, a small output is small for another reason, and has to be right by its own size:
a loss that varies by orders of magnitude between calls, one statistic of several beside a much larger one.
"""

from collections.abc import Sequence
from typing import Final

import torch

FEW: Final = 64  # elements
CANCELLED: Final = 8.0  # times the values that half a unit in the last place shows to cancel
LEAST: Final = 2.0  # times its own size that every value's error is related to, beside that size


def of_few(
    truth: torch.Tensor, *, rounded: Sequence[torch.Tensor], whole: float, epsilon: float, tiny: float
) -> torch.Tensor:
    """A size for each element; `rounded` are outputs that rounding alone has moved (the reference's, and those of noisy
    inputs), empty where none is known; `whole` is what the output's own row and other calls add at most.
    """
    want = _finite(truth)
    own = want.abs()
    row = own.square().mean(dim=-1, keepdim=True).sqrt() if own.dim() > 1 else own.square().mean().sqrt()
    most = row + own.square().mean().sqrt() / 100 + whole
    cancelled = torch.zeros_like(own)
    if rounded:
        squares = [(_finite(other) - want).abs().square() for other in rounded]
        cancelled = torch.stack(squares).mean(dim=0).sqrt() * (CANCELLED / epsilon)
    return own + torch.minimum(most, torch.clamp(torch.maximum(LEAST * own, cancelled), min=tiny))


def are_values(dtype: torch.dtype) -> bool:
    """Whether tensors of this dtype have rounding errors; else they count."""
    return bool(dtype.is_floating_point or dtype.is_complex)


def wide(values: torch.Tensor) -> torch.Tensor:
    """In double precision."""
    return values.to(torch.complex128 if values.is_complex() else torch.float64)


def _finite(values: torch.Tensor) -> torch.Tensor:
    exact = wide(values)
    return torch.where(torch.isfinite(exact), exact, torch.zeros_like(exact))

"""How far integers of few may be from the truth.

An element may be AS_FAR times as far off as rounding moves it in the same call: the reference's own, what the declared
precision allows, and draws of noisy inputs and weights. A near tie in one index frees no other, nor the same one in
another call. Most draws are louder, like the error of an honest kernel that sums in another order, because half a unit
in the last place shows only the nearest of the ties that such a kernel may break. Whoever still looks wrong is looked
at with more draws (see correctness.mismatched).
"""

from collections.abc import Sequence
from typing import Final

import torch

AS_FAR: Final = 8.0


def astray(output: torch.Tensor, truth: torch.Tensor, draws: Sequence[torch.Tensor]) -> torch.Tensor:
    """How far elements are off that are wrong, empty where none is; `draws` are what rounding makes of this call."""
    found = distance(truth, [output])
    own = distance(truth, draws) if draws else torch.zeros_like(found)
    return found[found > AS_FAR * own]


def distance(truth: torch.Tensor, others: Sequence[torch.Tensor]) -> torch.Tensor:
    """How far integers are from the truth at most, element by element, in double precision; what differs beyond 2**53
    is one apart at least.
    """
    exact = truth.double()
    apart = [((other.double() - exact).abs().clamp(min=1)).masked_fill(other == truth, 0) for other in others]
    return torch.stack(apart).amax(dim=0)

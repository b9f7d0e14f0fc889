"""How far integers of few may be from the truth.

An element may be FLIPS times as far off as rounding moves it: the reference's own, and draws of noisy inputs. Of
further ones, that no draw happened to move, there may be as many as chance leaves over; the share of elements that a
draw moves says how many that are. So one near tie among many indices allows none of the others to be wrong. Most of the
draws are louder, like the error of an honest kernel that sums in another order, because half a unit in the last place
shows only the nearest of the ties that such a kernel may break.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

FLIPS: Final = 8.0  # times as far as rounding moves it
UNSEEN: Final = 0.25
"""Of the elements that rounding moves, those that no draw has moved: a tie that a loud draw breaks the other way with
one chance in three stays as it is in eight of them with 4 %, more where the kernel's error is larger than theirs.
"""
DEVIATIONS: Final = 3.0


@dataclass
class Drift:
    """What rounding does to one tensor of few integers, over all draws so far."""

    furthest: float = 0.0
    elements: int = 0  # of all draws
    moved: int = 0  # of those

    def learn(self, truth: torch.Tensor, draw: torch.Tensor) -> None:
        """Take in what rounding has made of the truth once."""
        found = distance(truth, [draw])
        self.furthest = max(self.furthest, float(found.max()))
        self.elements += found.numel()
        self.moved += int((found > 0).sum())

    def astray(self, output: torch.Tensor, truth: torch.Tensor, draws: Sequence[torch.Tensor]) -> torch.Tensor:
        """How far elements are off that are wrong, empty where none is; `draws` are those of this call."""
        found = distance(truth, [output])
        own = distance(truth, draws) if draws else torch.zeros_like(found)
        beyond = found[found > FLIPS * own]
        if beyond.numel() <= self._left_over(found.numel()):
            return beyond[beyond > FLIPS * self.furthest]
        return beyond

    def _left_over(self, numel: int) -> int:
        expected = UNSEEN * numel * self.moved / max(self.elements, 1)
        return int(expected + DEVIATIONS * math.sqrt(expected))


def distance(truth: torch.Tensor, others: Sequence[torch.Tensor]) -> torch.Tensor:
    """How far integers are from the truth at most, element by element, in double precision; what differs beyond 2**53
    is one apart at least.
    """
    exact = truth.double()
    apart = [((other.double() - exact).abs().clamp(min=1)).masked_fill(other == truth, 0) for other in others]
    return torch.stack(apart).amax(dim=0)

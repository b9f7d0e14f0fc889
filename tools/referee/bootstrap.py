"""Median of paired ratios with a percentile bootstrap interval (95 %), and the call that is decided on the interval."""

import math
import random
import statistics
from dataclasses import dataclass
from typing import Final

RESAMPLES: Final = 4000
MARGIN: Final = 1.0


@dataclass(frozen=True)
class Interval:
    """baseline / candidate: above one the candidate is faster."""

    ratio: float
    low: float
    high: float

    @property
    def call(self) -> str:
        if self.low > MARGIN:
            return "faster"
        return "slower" if self.high < MARGIN else "inconclusive"

    def widened(self, factor: float) -> "Interval":
        """By a factor of one or more on both sides."""
        return Interval(ratio=self.ratio, low=self.low / factor, high=self.high * factor)

    def report(self) -> dict[str, float | str]:
        return {
            "ratio": round(self.ratio, 4),
            "low": round(self.low, 4),
            "high": round(self.high, 4),
            "call": self.call,
        }


def interval(ratios: list[float], *, resamples: int = RESAMPLES) -> Interval:
    """Ratios must be finite and positive; the seed is fixed, so that the same samples give the same interval."""
    if not ratios or not all(math.isfinite(ratio) and ratio > 0 for ratio in ratios):
        raise ValueError("ratios must be finite and positive")
    generator = random.Random(0)
    medians = sorted(statistics.median(generator.choices(ratios, k=len(ratios))) for _ in range(resamples))
    low, high = medians[int(0.025 * resamples)], medians[int(0.975 * resamples) - 1]
    return Interval(ratio=statistics.median(ratios), low=low, high=high)

"""After how many rounds nothing more is to be learned: neither the call (1.00) nor the reward (1.05) can change.

Looking again and again whether an interval excludes a margin finds in the end that it does, so that one look that
stops has to be surer than the interval that is reported: clear of both margins with twice its width. What is near a
margin is decided by the last round alone. Figures: benchmarks/judge_rounds.py, README of tools/.
"""

from typing import Final

from referee.bootstrap import Interval
from referee.samples import FEWEST_ROUNDS, Times

MOST_ROUNDS: Final = {"cpu": 40, "cuda": 24}
"""On a GPU rounds differ by a percent or two, and each costs ten times what it times."""
MARGINS: Final = (1.0, 1.05)
CLEAR: Final = 2.0  # widths between the ratio and a margin
WIDEST: Final = 0.10  # relative half-width: a ratio is also told to somebody
TIGHT: Final = 0.008  # relative half-width at which more rounds say nothing new
TIGHT_ROUNDS: Final = 10
ROUGH: Final = 500  # resamples where only more rounds or not is decided
RIVALS: Final = ("eager", "compile")


def enough(times: Times) -> bool:
    """Asked after every recorded round; the order of sides turns round, so that only even numbers are fair."""
    rounds = len(times.samples["submission"])
    if rounds < FEWEST_ROUNDS or rounds % 2 or not times.is_quiet():
        return False
    found = [times.of_rounds(rival, resamples=ROUGH) for rival in RIVALS]
    if all(_is_decided(interval, between=times.between) for interval in found):
        return True
    return rounds >= TIGHT_ROUNDS and all(_half_width(interval) <= TIGHT for interval in found)


def _half_width(interval: Interval) -> float:
    return (interval.high - interval.low) / 2 / interval.ratio


def _is_decided(interval: Interval, *, between: float) -> bool:
    """Whether every margin stays outside the reported interval, or inside it, whatever more rounds say: `between`, the
    part of it that rounds do not narrow, may cover a margin for good.
    """
    low = interval.ratio - CLEAR * (interval.ratio - interval.low)
    high = interval.ratio + CLEAR * (interval.high - interval.ratio)
    if _half_width(interval) > WIDEST or low <= 0:
        return False
    factor = 1 + between
    return all(
        not low / factor <= margin <= high * factor or high / factor < margin < low * factor for margin in MARGINS
    )

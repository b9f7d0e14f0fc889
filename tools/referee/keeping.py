"""Whether a call's time depends on what the weights were before: then something made from them is kept across calls.

Weights change between batches, never inside one; without this a value made from them once a batch would cost next to
nothing. Batches of several sizes run with weights that have just changed and with the same weights written once more;
all else is equal. Does not cover: what is kept only in batches so large that making it once is lost in the noise.
"""

import itertools
import random
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from referee import bootstrap, challenge, compare, correctness, timing, truth
from referee.challenge import State
from referee.correctness import FIRST_LIMIT_S, ORACLE_LIMIT_S, Trial
from referee.outcome import Rejected

PAIRS: Final = 6
MORE: Final = 10  # pairs that decide after the first look
LIMIT: Final = 1.2  # times as long after a change
COMPARE_ONE_IN: Final = 3


@dataclass(frozen=True)
class Pairs:
    """Batches of one size: seconds with weights as they were, and with new ones."""

    same_s: list[float]
    changed_s: list[float]

    def excess(self) -> bootstrap.Interval:
        return bootstrap.interval([new / old for old, new in zip(self.same_s, self.changed_s, strict=True)])


def check(trial: Trial, *, calls: int) -> None:
    """Raise where calls take longer after the weights have changed, at any of the sizes, twice."""
    if trial.policy != "strict" or not trial.notes.get("weights"):
        return
    state = challenge.draw_weights(
        trial.oracle, mode="redraw", seed=trial.seeds.of("weights", 20_000, 0), timeout_s=ORACLE_LIMIT_S
    )
    numbers = itertools.count()
    worst = 0.0
    for size in sorted({1, min(3, calls), max(1, calls // 4)}):
        excess = _timed(trial, state, numbers, size, PAIRS).excess()
        if excess.low > LIMIT:
            again = _timed(trial, state, numbers, size, MORE)
            excess = again.excess()
            if excess.low > LIMIT:
                raise Rejected("replay.cached_weights", _told(again, size, excess))
        worst = max(worst, excess.ratio)
    trial.notes["slower_after_new_weights"] = round(worst, 3)


def _told(pairs: Pairs, size: int, excess: bootstrap.Interval) -> str:
    before, after = (statistics.median(times) / size * 1e6 for times in (pairs.same_s, pairs.changed_s))
    return (
        f"{size} call(s) take {excess.ratio:.2f} times as long when the weights have changed since the call before "
        f"({after:.0f} us a call after {before:.0f} us): something made from them is kept across calls; "
        "under policy strict every call computes from the weights themselves"
    )


def _timed(trial: Trial, state: State, numbers: Iterator[int], size: int, pairs: int) -> Pairs:
    _batch(trial, state, next(numbers), size, compared=False)
    same_s, changed_s = [], []
    chosen = random.SystemRandom().randrange(COMPARE_ONE_IN)
    for pair in range(pairs):
        _turn(state, changed=False)
        same_s.append(_batch(trial, state, next(numbers), size, compared=False))
        _turn(state, changed=True)
        compared = pair % COMPARE_ONE_IN == chosen
        changed_s.append(_batch(trial, state, next(numbers), size, compared=compared))
    return Pairs(same_s=same_s, changed_s=changed_s)


def _turn(state: State, *, changed: bool) -> None:
    """New weights, or the same work for nothing: caches and clocks shall not tell the two apart."""
    before = [state.arena.tensor(index, layout=layout).clone() for index, (_, layout) in enumerate(state.entries)]
    timing.nudge(state)
    if not changed:
        for index, (_, layout) in enumerate(state.entries):
            state.arena.tensor(index, layout=layout).copy_(before[index])


def _batch(trial: Trial, state: State, number: int, size: int, *, compared: bool) -> float:
    """Seconds that a batch takes; its last output is compared where that is asked for."""
    seeds = trial.seeds.many("keeping", number, size)
    batch = challenge.draw(trial.oracle, seeds=seeds, timeout_s=ORACLE_LIMIT_S)
    placed = challenge.place(trial.submission, batch, perturb=0, weights=state)
    answer = challenge.run(trial.submission, batch, placed, timeout_s=FIRST_LIMIT_S + 200 * trial.item_s * size)
    challenge.sweep(trial.nursery, trusted=trial.trusted)
    if compared:
        compare.check_structure(answer.spec, expected=trial.spec)
        with challenge.still(trial.submission):
            outputs = challenge.read_outputs(trial.submission, answer, size - 1)
        timing.adopt(trial.oracle, state)
        known = truth.fetch(
            trial.oracle, items=[size - 1], precision=trial.precision, extra=[], timeout_s=ORACLE_LIMIT_S
        )
        tolerances = correctness.learned(trial, known, batch, scale=1.0, kept=False)
        mismatch = correctness.mismatched(trial, known, outputs, item=0, index=size - 1, tolerances=tolerances)
        if mismatch is not None:
            raise Rejected("replay.cached_weights", f"the output is wrong after the weights changed; {mismatch.told()}")
    return answer.window.wall_ns / 1e9

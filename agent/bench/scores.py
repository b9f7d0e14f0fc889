"""Scores of a suite. Denominators are all tasks of a level: what is missing, rejected or unjudged is not solved.

fast_p (KernelBench): the share of tasks that are correct and more than p times as fast as a baseline; fast_0 is the
pass rate. Faster rates are fast_1. Geometric means are over what was solved in a level; the overall one weighs the
levels' means by their tasks, which reproduces the CUDA-Agent paper's. `decided` counts what the judge calls faster, on
the interval: the stricter number.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from agent.bench.outcomes import Outcome

Baseline = Literal["eager", "compile"]
BASELINES: Final[tuple[Baseline, ...]] = ("eager", "compile")
THRESHOLDS: Final = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
OVERALL: Final = "overall"


@dataclass(frozen=True)
class Score:
    """One level, or all. Shares are in [0, 1]; a geometric mean is None where nothing was solved."""

    level: str
    tasks: int
    solved: int
    unjudged: int
    fast: Mapping[Baseline, Mapping[float, float]]
    decided: Mapping[Baseline, float]
    geomean: Mapping[Baseline, float | None]
    rewards: Mapping[str, int]

    @property
    def passed(self) -> float:
        return self.solved / self.tasks if self.tasks else 0.0

    def as_dict(self) -> dict[str, Any]:
        return {
            "level": self.level,
            "tasks": self.tasks,
            "solved": self.solved,
            "unjudged": self.unjudged,
            "pass_rate": self.passed,
            "faster": {name: self.fast[name][1.0] for name in BASELINES},
            "decided_faster": dict(self.decided),
            "fast_p": {name: {f"{p:g}": share for p, share in self.fast[name].items()} for name in BASELINES},
            "geomean": dict(self.geomean),
            "rewards": dict(self.rewards),
        }


def score(level: str, outcomes: Sequence[Outcome]) -> Score:
    total = len(outcomes)
    solved = [outcome for outcome in outcomes if outcome.solved]
    return Score(
        level=level,
        tasks=total,
        solved=len(solved),
        unjudged=sum(outcome.status == "error" for outcome in outcomes),
        fast={name: {p: _share(_faster(solved, name, p), total) for p in THRESHOLDS} for name in BASELINES},
        decided={name: _share(sum(_called_faster(one, name) for one in solved), total) for name in BASELINES},
        geomean={name: geometric_mean(_ratios(solved, name)) for name in BASELINES},
        rewards={str(value): sum(one.reward == value for one in outcomes) for value in (-1, 1, 2, 3)},
    )


def score_all(outcomes: Sequence[Outcome]) -> list[Score]:
    """Each level by its name, then all together; one level alone is only overall."""
    levels = sorted({outcome.level for outcome in outcomes})
    each = [score(level, [one for one in outcomes if one.level == level]) for level in levels]
    whole = score(OVERALL, outcomes)
    overall = replace(whole, geomean={name: _weighted(each, name) for name in BASELINES})
    return [*(each if len(levels) > 1 else []), overall]


def _weighted(levels: Sequence[Score], baseline: Baseline) -> float | None:
    """By tasks, over the levels where anything was solved."""
    known = [(one.tasks, mean) for one in levels if (mean := one.geomean[baseline])]
    if not known:
        return None
    return math.exp(math.fsum(tasks * math.log(mean) for tasks, mean in known) / sum(tasks for tasks, _ in known))


def geometric_mean(ratios: Iterable[float]) -> float | None:
    logs = [math.log(ratio) for ratio in ratios if ratio > 0]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def _ratios(solved: Sequence[Outcome], baseline: Baseline) -> list[float]:
    return [ratio for one in solved if (ratio := one.ratio(baseline)) is not None]


def _faster(solved: Sequence[Outcome], baseline: Baseline, threshold: float) -> int:
    """More than the threshold, strictly; fast_0 is correctness alone."""
    if threshold == 0:
        return len(solved)
    return sum(ratio > threshold for ratio in _ratios(solved, baseline))


def _called_faster(outcome: Outcome, baseline: Baseline) -> bool:
    measured = (outcome.speedup or {}).get(baseline)
    return measured is not None and measured.call == "faster"


def _share(count: int, total: int) -> float:
    return count / total if total else 0.0

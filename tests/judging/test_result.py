"""Which verdict counts, what reward follows, and when nothing may be said about a submission."""

from pathlib import Path
from typing import Any

import pytest

from agent.judging.reports import MedianUs, Reason, Speedup, Verdict
from agent.loop.keeping import weakest_speedup
from agent.loop.result import EpisodeResult, better, reward_of
from agent.trajectory.events import StopReason

COMMON: dict[str, Any] = {"schema_version": 1, "target": "cpu", "policy": "strict", "precision": "strict"}


def accepted(reward: Any, eager: float, compiled: float) -> Verdict:
    speedup = {
        name: Speedup(ratio=r, low=r, high=r, call="faster") for name, r in (("eager", eager), ("compile", compiled))
    }
    return Verdict(
        verdict="accepted", correct=True, reward=reward, speedup=speedup, median_us=MedianUs(candidate=1.0), **COMMON
    )


REASON = (Reason(code="numeric.mismatch", detail="wrong"),)
REJECTED = Verdict(verdict="rejected", correct=False, reward=-1, reasons=REASON, **COMMON)
ERROR = Verdict(verdict="error", correct=None, reward=None, reasons=REASON, **COMMON)


def result(
    reason: StopReason, reward: int | None, best: Verdict | None, final: Verdict | None, *errors: str
) -> EpisodeResult:
    return EpisodeResult(Path("/x"), reason, reward, best, final, 1, 0, 0, None, 1.0, judge_errors=errors)


def test_the_better_accepted_one_counts() -> None:
    fast, faster = accepted(2, 1.5, 1.01), accepted(3, 1.2, 1.1)
    assert better(fast, faster) is faster
    assert better(faster, fast) is faster
    assert better(accepted(3, 2.0, 1.3), faster) != faster
    assert better(REJECTED, fast) is fast
    assert better(None, REJECTED) is REJECTED
    assert better(None, None) is None


@pytest.mark.parametrize(
    ("reason", "best", "final", "judged", "reward"),
    [
        (StopReason.SUBMITTED, accepted(3, 2, 2), REJECTED, True, 3),
        (StopReason.SANDBOX, accepted(2, 2, 1), None, False, 2),
        (StopReason.SUBMITTED, None, REJECTED, True, -1),
        (StopReason.TURNS, REJECTED, REJECTED, True, -1),
        (StopReason.OOM, None, REJECTED, True, -1),
        (StopReason.SANDBOX, None, REJECTED, True, None),
        (StopReason.BACKEND, None, REJECTED, True, None),
        (StopReason.DISK_FULL, None, REJECTED, True, None),
        (StopReason.CANCELLED, None, REJECTED, True, None),
        (StopReason.SUBMITTED, None, REJECTED, False, None),
        (StopReason.SUBMITTED, ERROR, REJECTED, True, None),
        (StopReason.SUBMITTED, None, ERROR, True, None),
        (StopReason.SUBMITTED, None, None, False, None),
    ],
)
def test_rewards(
    reason: StopReason, best: Verdict | None, final: Verdict | None, judged: bool, reward: int | None
) -> None:
    assert reward_of(reason, best, final, judged=judged) == reward


def test_exit_codes() -> None:
    assert result(StopReason.SUBMITTED, 3, accepted(3, 2, 2), None).exit_code == 0
    assert result(StopReason.BACKEND, 2, accepted(2, 2, 1), None).exit_code == 0
    assert result(StopReason.SUBMITTED, 1, accepted(1, 1, 1), None).exit_code == 1
    assert result(StopReason.SUBMITTED, -1, None, REJECTED).exit_code == 1
    assert result(StopReason.CANCELLED, None, None, REJECTED).exit_code == 1
    assert result(StopReason.BACKEND, None, None, REJECTED).exit_code == 3
    assert result(StopReason.SUBMITTED, None, None, ERROR).exit_code == 3
    assert result(StopReason.SUBMITTED, None, None, None, "final: no report").exit_code == 3


def test_a_submission_is_as_good_as_against_its_hardest_rival() -> None:
    assert weakest_speedup({"speedup": {"eager": {"ratio": 3.0}, "compile": {"ratio": 1.2}}}) == 1.2
    assert weakest_speedup({"speedup": None}) is None
    assert weakest_speedup({}) is None

"""How a suite is counted: denominators, strictness at a threshold, geometric means, tables, published figures."""

import math
from typing import Any

import pytest

from agent.bench import report
from agent.bench.outcomes import Outcome, level_of
from agent.bench.published import LEVELS, TABLE
from agent.bench.scores import geometric_mean, score, score_all
from agent.judging.reports import MedianUs, Reason, Speedup


def outcome(task: str, eager: float | None = None, compiled: float | None = None, **fields: Any) -> Outcome:
    speedup = None
    if eager is not None and compiled is not None:
        speedup = {name: Speedup(ratio=r, low=r, high=r, call="faster" if r > 1.02 else "inconclusive") for name, r in
                   (("eager", eager), ("compile", compiled))}  # fmt: skip
        fields = {"status": "accepted", "reward": 3, "median_us": MedianUs(candidate=1.0), **fields}
    facts = {"status": "rejected", "reward": -1, **fields}
    return Outcome(task=task, level=level_of(task), task_sha256="0", key="k", speedup=speedup, **facts)


SUITE = [
    outcome("level1/1_A", 2.0, 1.0),
    outcome("level1/2_B", 8.0, 0.5),
    outcome("level1/3_C", reasons=(Reason(code="numeric.mismatch", detail="|wrong|"),)),
    outcome("level2/1_D", 1.01, 4.0),
    outcome("level2/2_E", status="error", reward=None),
    outcome("level2/3_F", status="missing", reward=None),
    outcome("level2/4_G", 1.0, 1.0),
]


def test_all_tasks_are_the_denominator() -> None:
    one, two, overall = score_all(SUITE)
    assert [one.level, two.level, overall.level] == ["level1", "level2", "overall"]
    assert one.passed == pytest.approx(2 / 3) and two.passed == 0.5 and overall.passed == pytest.approx(4 / 7)
    assert overall.fast["eager"][0.0] == overall.passed
    assert overall.fast["eager"][1.0] == pytest.approx(3 / 7) and overall.unjudged == 1


def test_a_threshold_is_exceeded_strictly_and_faster_is_decided_on_the_interval() -> None:
    one, two, _ = score_all(SUITE)
    assert one.fast["compile"][1.0] == 0.0 and one.fast["compile"][0.5] == pytest.approx(1 / 3)
    assert one.fast["eager"][2.0] == pytest.approx(1 / 3) and one.fast["eager"][1.5] == pytest.approx(2 / 3)
    assert two.fast["eager"][1.0] == 0.25 and two.decided["eager"] == 0.0


def test_the_geometric_mean_is_over_what_was_solved_and_weighted_by_tasks() -> None:
    one, two, overall = score_all(SUITE)
    assert one.geomean["eager"] == pytest.approx(4.0) and two.geomean["compile"] == pytest.approx(2.0)
    assert two.geomean["eager"] == pytest.approx(1.01**0.5)
    assert overall.geomean["eager"] == pytest.approx((4.0**3 * 1.01 ** (4 / 2)) ** (1 / 7))
    assert geometric_mean([]) is None and score("x", []).geomean["eager"] is None


def test_the_published_overall_rows_are_the_task_weighted_means_of_their_levels() -> None:
    """100, 100 and 50 tasks: holds both that the table was copied right and how the overall mean is made."""
    for model, (overall, *levels) in TABLE.items():
        assert len(levels) == len(LEVELS) - 1
        weights = (100, 100, 50)
        assert sum(w * level.passed for w, level in zip(weights, levels, strict=True)) / 250 == pytest.approx(
            overall.passed
        ), model
        assert sum(w * level.faster_compile for w, level in zip(weights, levels, strict=True)) / 250 == pytest.approx(
            overall.faster_compile
        ), model
        logs = [math.log(level.geomean_compile) for level in levels]
        mean = math.exp(sum(w * log for w, log in zip(weights, logs, strict=True)) / 250)
        assert mean == pytest.approx(overall.geomean_compile, abs=0.01), model


def test_the_tables_name_every_task_and_set_the_paper_beside() -> None:
    text = report.markdown("kernelbench", SUITE, about={"device": "none", "empty": ""})
    assert all(one.task in text for one in SUITE)
    assert "| level1/3_C | numeric.mismatch | -1 |" in text and "1 tasks could not be judged" in text
    assert "| CUDA Agent | 98.8 / 98.4 / 96.8 / 2.60 / 2.11 | 100 / 99 / 97 / 2.48 / 1.87 |" in text
    assert "CUDA Agent" not in report.markdown("mine", [outcome("softmax", 2.0, 2.0)], about={})

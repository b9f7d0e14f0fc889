"""Which candidates become the set: the first that pass, in order, whatever came in which batch."""

import json
import random

import pytest

from agent.errors import ConfigError
from agent.judging.reports import Reason
from agent.tasks.admission.examiner import CandidateReport
from agent.tasks.synthesis.candidate import Candidate, Source, with_batch
from agent.tasks.synthesis.journal import Journal
from agent.tasks.synthesis.measured import read_times
from agent.tasks.synthesis.mix import PAPER, quotas
from agent.tasks.synthesis.operators import catalogue
from agent.tasks.synthesis.streams import BENCHMARK, DUPLICATE, UNTIMED, Stream


def report(text: str, code: str = "", flag: str = "") -> CandidateReport:
    reasons = (Reason(code=code, detail="because"),) if code else ()
    flags = (Reason(code=flag, detail="seen"),) if flag else ()
    return CandidateReport(
        id=text, status="refused" if code else "admitted", stage="controls", reasons=reasons, flags=flags
    )


def verdict(sha256: str) -> CandidateReport:
    """What an examination of this text finds, made up from its hash."""
    place = int(sha256[:4], 16) % 10
    codes = {0: "task.unjudgeable", 1: "task.too_fast", 2: "task.too_slow"}
    return report(sha256, codes.get(place, ""), "task.lost_work" if place == 3 else "")


def filled(batch: int, *, shuffle: int) -> Stream:
    stream = Stream("torch#2", 25, Source(5, "cpu", catalogue()), lambda _: None)
    reports: dict[str, CandidateReport] = {}
    for _ in range(200):
        stream.settle(reports)
        if stream.full:
            return stream
        wanted = stream.wanted(reports, batch)
        random.Random(shuffle).shuffle(wanted)
        for candidate in wanted[: max(1, len(wanted) // 2)]:
            reports[candidate.examined_sha256] = verdict(candidate.examined_sha256)
    raise AssertionError("never full")


def test_the_set_does_not_depend_on_batches() -> None:
    one, other = filled(3, shuffle=1), filled(40, shuffle=2)
    assert [kept.candidate.text for kept in one.kept] == [kept.candidate.text for kept in other.kept]
    assert one.funnel() == other.funnel() and one.rescaled == other.rescaled > 0
    assert one.funnel()["task.unjudgeable"] and one.funnel()["task.lost_work"]


def test_what_is_out_of_band_is_tried_with_other_sizes() -> None:
    source = Source(5, "cpu", catalogue())
    stream = Stream("torch#1", 1, source, lambda _: None)
    (first,) = stream.wanted({}, 1)
    reports = {first.examined_sha256: report("a", "task.too_fast")}
    second = stream.wanted(reports, 1)[0]
    assert (second.number, second.attempt) == (first.number, 1)
    assert second.text != first.text and second.mark == first.mark
    reports[second.examined_sha256] = report("b")
    stream.settle(reports)
    assert stream.full and stream.kept[0].candidate.attempt == 1


def test_near_duplicates_and_what_is_near_the_benchmark_are_dropped() -> None:
    from agent.export.similarity import Nearest

    stream = Stream("torch#1", 60, Source(5, "cpu", catalogue()), lambda _: None)
    reports: dict[str, CandidateReport] = {}
    while not stream.full:
        for candidate in stream.wanted(reports, 100):
            reports[candidate.examined_sha256] = report("x")
        stream.settle(reports)
    marks = [kept.candidate.mark for kept in stream.kept]
    assert len(set(marks)) == len(marks) and stream.funnel()[DUPLICATE] > 0
    near = Stream("torch#1", 1, Source(5, "cpu", catalogue()), lambda _: Nearest("level1/19_ReLU.py", 0.95))
    near.settle({})
    assert near.funnel()[BENCHMARK] == near.number > 100 and near.exhausted


def test_the_journal_goes_on_after_a_torn_line_and_refuses_another_set(tmp_path) -> None:
    path = tmp_path / "set.jsonl.journal.jsonl"
    journal = Journal(path, {"seed": 1})
    journal.add("a" * 64, report("a"))
    journal.add("b" * 64, report("b", "task.raises"))
    torn = path.read_bytes()[:-30]
    path.write_bytes(torn)
    again = Journal(path, {"seed": 1})
    assert set(again.reports) == {"a" * 64}
    again.add("b" * 64, report("b"))
    assert Journal(path, {"seed": 1}).reports == {"a" * 64: report("a"), "b" * 64: report("b")}
    with pytest.raises(ConfigError, match="seed differ"):
        Journal(path, {"seed": 2})
    path.write_text("something else\n")
    with pytest.raises(ConfigError, match="no journal"):
        Journal(path, {"seed": 1})


def test_measured_times_decide_and_the_next_candidates_take_the_place(tmp_path) -> None:
    source = Source(5, "cpu", catalogue())
    plain = Stream("torch#2", 4, source, lambda _: None)
    reports = {one.examined_sha256: report("x") for one in plain.wanted({}, 30)}
    plain.settle(reports)
    slow, fast, broken, elsewhere = (kept.candidate.sha256 for kept in plain.kept)
    rows = [
        {"sha256": slow, "eager_ms": 120.0, "device": "a GPU"},
        {"sha256": fast, "eager_ms": 5.0, "equal": False},
        {"sha256": broken, "error": "OutOfMemoryError"},
        {"sha256": elsewhere, "error": "LoadError: model.py: ModuleNotFoundError: No module named 'transformers'"},
    ]
    path = tmp_path / "times.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    timed = Stream("torch#2", 3, source, lambda _: None, read_times(path))
    while not timed.full:
        reports |= {one.examined_sha256: report("x") for one in timed.wanted(reports, 30)}
        timed.settle(reports)
    assert {slow, fast, broken, elsewhere} & {kept.candidate.sha256 for kept in timed.kept} == {elsewhere}
    assert timed.funnel() == {"task.too_slow": 1, "task.compile_differs": 1, "task.raises": 1} | plain.funnel()
    path.write_text("no times\n")
    with pytest.raises(ConfigError, match=r"times\.jsonl:1"):
        read_times(path)


def test_a_task_of_another_device_needs_a_time_there_and_becomes_the_size_that_was_measured(tmp_path) -> None:
    source = Source(5, "cuda", catalogue(), twin=True)
    plain = Stream("torch#2", 3, source, lambda _: None)
    reports = {one.examined_sha256: report("x") for one in plain.wanted({}, 30)}
    plain.settle(reports)
    first, second, third = (kept.candidate for kept in plain.kept)
    resized = with_batch(second, 24)
    path = tmp_path / "times.jsonl"
    rows = [
        {"sha256": first.sha256, "eager_ms": 0.01},
        {"sha256": first.sha256, "eager_ms": 3.0, "compile_ms": 2.0},
        {"sha256": second.sha256, "eager_ms": 4.0, "batch_size": 24, "resized_sha256": resized.sha256},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    timed = Stream("torch#2", 2, source, lambda _: None, read_times(path))
    timed.settle(reports)
    assert [kept.candidate.sha256 for kept in timed.kept] == [first.sha256, resized.sha256]
    assert [kept.times and kept.times["sha256"] for kept in timed.kept] == [first.sha256, resized.sha256]
    assert "batch_size = 24\n" in resized.text and resized.examined == second.examined
    was = int(second.text.split("batch_size = ")[1].split()[0])
    assert resized.about["value_bytes"] * was == second.about["value_bytes"] * 24

    more = Stream("torch#2", 3, source, lambda _: None, read_times(path))
    assert third.examined_sha256 not in {one.examined_sha256 for one in more.wanted(reports, 30)}
    more.settle(reports)
    assert not more.full and more.funnel()[UNTIMED] > 100
    rows[2]["resized_sha256"] = "0" * 64
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ConfigError, match="another text"):
        Stream("torch#2", 2, source, lambda _: None, read_times(path)).settle(reports)


def test_a_twin_that_is_too_fast_changes_its_own_sizes_only() -> None:
    source = Source(5, "cuda", catalogue(), twin=True)
    one, other = source.candidate("torch#2", 0), source.candidate("torch#2", 0, factor=5.0, attempt=1)
    assert isinstance(one, Candidate) and isinstance(other, Candidate)
    assert one.text == other.text and one.examined != other.examined


@pytest.mark.parametrize("wanted", [1000, 60])
def test_a_set_has_the_mix_whatever_the_filters_drop(wanted: int) -> None:
    """Kinds in which few pass get more candidates, not fewer tasks."""
    harsh = {"torch#1": 2, "torch#2": 1, "torch#3": 5, "torch#4": 7, "torch#5": 8, "transformers": 3}
    found = {}
    for kind, quota in quotas(PAPER, wanted).items():
        stream = Stream(kind, quota, Source(1, "cpu", catalogue()), lambda _: None)
        reports: dict[str, CandidateReport] = {}
        while not stream.full:
            assert not stream.exhausted, kind
            for candidate in stream.wanted(reports, 128):
                sha256 = candidate.examined_sha256
                bad = int(sha256[:6], 16) % 10 < harsh[kind]
                reports[sha256] = report(sha256, "task.unjudgeable" if bad else "")
            stream.settle(reports)
        found[kind] = len(stream.kept)
    assert sum(found.values()) == wanted
    assert all(abs(100 * found[kind] / wanted - PAPER[kind]) < 100 / wanted for kind in PAPER)

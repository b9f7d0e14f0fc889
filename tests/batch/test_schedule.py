"""What is tried next."""

from agent.batch.scan import Sample
from agent.batch.schedule import Schedule


def taken(schedule: Schedule, now: float = 0.0) -> list[tuple[str, int]]:
    found = []
    while (sample := schedule.next(now)) is not None:
        found.append(sample.key)
    return found


def new(*keys: tuple[str, int]) -> list[Sample]:
    return [Sample(key, "new") for key in keys]


def test_every_task_is_tried_once_before_its_other_samples() -> None:
    schedule = Schedule(new(("a", 0), ("a", 1), ("b", 0), ("b", 1)))
    assert taken(schedule) == [("a", 0), ("b", 0)]
    assert schedule.owes
    schedule.admit("b")
    assert taken(schedule) == [("b", 1)]
    schedule.admit("a")
    assert taken(schedule) == [("a", 1)]
    assert not schedule.owes


def test_owed_runs_come_first() -> None:
    from pathlib import Path

    owed = Sample(("b", 1), "owed", Path("/run"))
    schedule = Schedule([*new(("a", 0), ("b", 0)), owed])
    assert taken(schedule) == [("b", 1), ("a", 0), ("b", 0)]


def test_a_refused_task_is_not_tried_again() -> None:
    schedule = Schedule(new(("a", 0), ("a", 1), ("a", 2), ("b", 0)))
    assert taken(schedule) == [("a", 0), ("b", 0)]
    schedule.refuse("a")
    assert taken(schedule) == []
    assert not schedule.owes


def test_when_the_first_try_fails_another_sample_may_try() -> None:
    schedule = Schedule(new(("a", 0), ("a", 1)))
    assert taken(schedule) == [("a", 0)]
    schedule.ended(Sample(("a", 0), "failed"), 0.0)
    assert taken(schedule) == [("a", 1)]


def test_a_failed_attempt_waits_longer_each_time() -> None:
    schedule = Schedule(new(("a", 0)), retry_s=4.0)
    for burned, soon, late in ((1, 2.9, 5.1), (2, 11.9, 20.1)):
        assert taken(schedule, 1000.0 * burned) == [("a", 0)]
        schedule.ended(Sample(("a", 0), "new", burned=burned), 1000.0 * burned)
        assert taken(schedule, 1000.0 * burned + soon) == []
        assert schedule.owes
        assert taken(schedule, 1000.0 * burned + late) == [("a", 0)]
        schedule.ended(Sample(("a", 0), "new", burned=0), 0.0, wait=False)


def test_done_samples_are_no_work() -> None:
    schedule = Schedule([Sample(("a", 0), "done"), Sample(("a", 1), "failed")])
    assert not schedule.owes
    assert schedule.next(0.0) is None

"""Outages: new work waits, one job at a time tries, and a job that fails alone is found out."""

import pytest

from agent.batch.faults import Fault, fault_of, refused_by
from agent.batch.patience import MOST_STRIKES, Outage, Patience
from agent.errors import (
    BackendError,
    ConfigError,
    InUse,
    JudgeError,
    RecordError,
    SandboxError,
    TaskError,
    UnclearTask,
)
from agent.trajectory.events import StopReason
from agent.trajectory.stored import Ending


def test_one_job_tries_after_growing_pauses_until_somebody_answers() -> None:
    outage = Outage(Patience(first_s=5, longest_s=15, give_up_s=100))
    assert not outage.blocks(0)
    outage.started("a", 0)
    outage.started("b", 0)
    assert outage.failed("a", "nobody answers", 10)
    assert not outage.failed("b", "nobody answers", 11)
    assert outage.blocks(14) and not outage.blocks(15)
    outage.started("a", 15)
    assert outage.blocks(99)
    assert not outage.failed("a", "nobody answers", 20)
    assert outage.blocks(29.9) and not outage.blocks(30)
    outage.started("a", 30)
    outage.failed("a", "nobody answers", 31)
    assert outage.blocks(45.9) and not outage.blocks(46)
    assert not outage.too_long(60) and outage.too_long(110)
    outage.started("a", 46)
    assert outage.answered("a", 50)
    assert not outage.blocks(50) and not outage.too_long(1000)
    assert not outage.answered("a", 51)


def test_a_try_that_ends_otherwise_lets_another_one_try() -> None:
    outage = Outage(Patience(first_s=1))
    outage.started("a", 0)
    outage.failed("a", "", 0)
    outage.started("b", 2)
    outage.ended("b")
    assert not outage.blocks(2)


def test_a_job_that_fails_while_others_are_answered_is_no_outage_for_long() -> None:
    outage = Outage(Patience(first_s=0))
    now = 0.0
    for _ in range(MOST_STRIKES):
        assert outage.is_patient("a")
        outage.started("a", now)
        outage.answered("b", now + 1)
        outage.failed("a", "500", now + 2)
        now += 10
    assert not outage.is_patient("a")
    assert outage.is_patient("b")
    outage.answered("a", now)
    assert outage.is_patient("a")


def test_a_real_outage_is_nobodys_fault() -> None:
    outage = Outage(Patience(first_s=0))
    for key in ("a", "b"):
        outage.started(key, 0)
    outage.answered("a", 1)
    outage.answered("b", 2)
    for now in range(3, 50):
        for key in ("a", "b"):
            outage.started(key, now)
            outage.failed(key, "503", now + 0.5)
    assert outage.is_patient("a") and outage.is_patient("b")


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (TaskError("x"), Fault.TASK),
        (UnclearTask("x"), Fault.UNCLEAR),
        (InUse("x"), Fault.BUSY),
        (ConfigError("x"), Fault.SETUP),
        (BackendError("x", kind="no_key"), Fault.SETUP),
        (BackendError("x", kind="unreachable"), Fault.OUTAGE),
        (BackendError("x", kind="rate_limit"), Fault.OUTAGE),
        (BackendError("x", kind="bad_request"), Fault.BACKEND),
        (RecordError("x", full=True), Fault.DISK_FULL),
        (RecordError("x"), Fault.RECORD),
        (SandboxError("x"), Fault.SANDBOX),
        (JudgeError("x"), Fault.JUDGE),
        (OSError(28, "full"), Fault.DISK_FULL),
        (ValueError("x"), Fault.INTERNAL),
    ],
)
def test_every_error_has_its_class(error: Exception, fault: Fault) -> None:
    assert fault_of(error) is fault


def test_a_sandbox_that_a_full_disk_took_is_the_disks_fault() -> None:
    error = SandboxError("cannot make a folder")
    error.__cause__ = OSError(28, "No space left on device")
    assert fault_of(error) is Fault.DISK_FULL


@pytest.mark.parametrize(
    ("codes", "refused"),
    [
        (["task.constant_inputs"], True),
        (["task.lost_work", "task.ignores_inputs"], True),
        (["task.hangs"], False),
        (["task.lost_work", "task.out_of_memory"], False),
        (["runtime.infrastructure"], False),
        ([], False),
    ],
)
def test_only_what_another_try_would_find_too_is_refused_for_good(codes: list[str], refused: bool) -> None:
    verdict = {"verdict": "error", "reasons": [{"code": code, "detail": "x"} for code in codes]}
    assert bool(refused_by(Ending(StopReason.SUBMITTED, None, verdict, ()))) is refused

"""What compute-sanitizer finds in an accepted submission rejects it; everything else leaves the verdict as it is."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from one_tool import OneTool

from agent.judging.reports import MedianUs, Speedup, Verdict
from agent.judging.winner import CODE, look_again
from agent.sandbox.base import SandboxSpec
from agent.sandbox.unconfined import UnconfinedSandbox, open_unconfined
from agent.tasks.task import Task, text_sha256

TASK = Task(path=Path("/x/model.py"), name="x", text="class Model: pass\n", sha256=text_sha256("class Model: pass\n"))
FASTER = Speedup(ratio=2.0, low=1.9, high=2.1, call="faster")
WON: dict[str, Any] = {
    "schema_version": 1, "verdict": "accepted", "correct": True, "reward": 3, "target": "cuda", "policy": "strict",
    "precision": "strict", "speedup": {"eager": FASTER, "compile": FASTER}, "evidence": {"seconds": 9.0},
    "median_us": MedianUs(candidate=1.0, eager=2.0, compile=2.0),
}  # fmt: skip
FOUND = {
    "check": "memcheck",
    "status": "found",
    "detail": "ERROR SUMMARY: 3 errors",
    "lines": ["Invalid write", "at f"],
}


@pytest.fixture
def inner(tmp_path: Path) -> Iterator[UnconfinedSandbox]:
    sandbox = open_unconfined(SandboxSpec(workspace=tmp_path), python=sys.executable, consent=True)
    yield sandbox
    sandbox.close()


def answer(status: str, *checks: dict[str, Any], **more: Any) -> str:
    report = {"schema_version": 1, "tool": "sanitize", "status": status, "checks": checks, **more}
    return f"say({report})"


def test_a_bad_access_rejects(inner: UnconfinedSandbox, tmp_path: Path) -> None:
    checker = OneTool(inner, answer("found", FOUND))
    verdict = look_again(checker, TASK, Verdict(**WON), log=tmp_path / "judge.log")
    assert (verdict.verdict, verdict.reward, verdict.correct, verdict.speedup) == ("rejected", -1, False, None)
    (reason,) = verdict.reasons
    assert reason.code == CODE and "3 errors: Invalid write; at f" in reason.detail
    assert verdict.evidence["memcheck"]["status"] == "found" and verdict.evidence["seconds"] == 9.0
    assert checker.asked[2] == "/opt/agent-tools/sanitize.py"
    assert {"--checks=memcheck", "--limit-s=60"} <= set(checker.asked)
    assert (tmp_path / "judge-memcheck.log").exists() and not (tmp_path / "judge.log").exists()


@pytest.mark.parametrize(
    ("script", "status", "detail"),
    [
        (answer("clean", FOUND | {"status": "clean", "detail": "ERROR SUMMARY: 0 errors"}), "clean", "0 errors"),
        (
            answer("error", FOUND | {"status": "error", "detail": "compute-sanitizer is not installed"}),
            "error",
            "not inst",
        ),
        (
            answer("error", FOUND | {"status": "error", "detail": "Error: Device not supported"}),
            "error",
            "not supported",
        ),
        (
            answer("error", reasons=[{"code": "build.toolchain", "detail": "no nvcc"}]),
            "error",
            "build.toolchain: no nvcc",
        ),
        ("raise SystemExit(3)", "error", "exit code 3 and without a report"),
    ],
)
def test_a_checker_that_finds_nothing_or_cannot_look_rejects_nothing(
    inner: UnconfinedSandbox, script: str, status: str, detail: str
) -> None:
    won = Verdict(**WON)
    verdict = look_again(OneTool(inner, script), TASK, won)
    told = verdict.evidence["memcheck"]
    assert (told["status"], detail in told["detail"]) == (status, True), told
    assert verdict.model_copy(update={"evidence": won.evidence}) == won


def test_only_what_is_accepted_on_a_gpu_is_looked_at(inner: UnconfinedSandbox) -> None:
    checker = OneTool(inner, answer("found", FOUND))
    on_cpu = Verdict(**WON | {"target": "cpu"})
    reasons = ({"code": "numeric.mismatch", "detail": "x"},)
    lost = {
        "verdict": "rejected",
        "reward": -1,
        "correct": False,
        "reasons": reasons,
        "speedup": None,
        "median_us": None,
    }
    assert look_again(checker, TASK, on_cpu) == on_cpu
    rejected = Verdict(**WON | lost)
    assert look_again(checker, TASK, rejected) == rejected
    assert checker.asked == []

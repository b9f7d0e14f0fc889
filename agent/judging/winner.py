"""A last look at what the referee has accepted on a GPU: compute-sanitizer's memcheck, before the verdict is given.

Covers: bad accesses of one call on the task's own inputs, with every tensor an allocation of its own; each of them
rejects. Not covered: what a submission hides from a checker that it recognises; races and unwritten memory (the action
`sanitize` looks for them). A checker that is missing, denied, or too slow rejects nothing: the evidence says so.
"""

import time
from pathlib import Path
from typing import Any, Final

from agent.judging.reports import Reason, SanitizeReport, Verdict
from agent.judging.tool_runs import NoReport, run_sanitizer
from agent.sandbox.base import Sandbox
from agent.tasks.task import Task

LIMIT_S: Final = 60.0
"""For one run under the tool: a finding takes two (the reference is the control), Triton compiles before it."""
TIMEOUT_S: Final = 4 * LIMIT_S
LINES: Final = 4
CODE: Final = "memory.bad_access"


def look_again(sandbox: Sandbox, task: Task, verdict: Verdict, *, log: Path | None = None) -> Verdict:
    """The same verdict with `evidence.memcheck`, or a rejection. Raises SandboxError where the sandbox is gone."""
    if verdict.verdict != "accepted" or verdict.target != "cuda":
        return verdict
    began = time.monotonic()
    try:
        own_log = log and log.with_name(f"{log.stem}-memcheck{log.suffix}")
        report = run_sanitizer(sandbox, task, checks=("memcheck",), limit_s=LIMIT_S, timeout_s=TIMEOUT_S, log=own_log)
        found = _told(report)
    except NoReport as error:
        found = {"status": "error", "detail": error.message}
    found["seconds"] = round(time.monotonic() - began, 2)
    evidence = {**verdict.evidence, "memcheck": found}
    if found["status"] != "found":
        return verdict.model_copy(update={"evidence": evidence})
    detail = f"compute-sanitizer memcheck: {found['detail']}: {'; '.join(found['lines'][:LINES])}"
    rejected = {"verdict": "rejected", "reward": -1, "correct": False, "speedup": None, "median_us": None}
    reasons = ({"code": CODE, "detail": detail[:1000]},)
    data = verdict.model_dump() | rejected | {"reasons": reasons, "evidence": evidence}
    return Verdict.model_validate(data)


def _told(report: SanitizeReport) -> dict[str, Any]:
    for check in report.checks:
        lines = list(check.lines) if check.status == "found" else []
        return {"status": check.status, "detail": check.detail, "lines": lines}
    return {"status": "error", "detail": _why(report.reasons)}


def _why(reasons: tuple[Reason, ...]) -> str:
    return "; ".join(f"{reason.code}: {reason.detail}" for reason in reasons)[:300] or "nothing was checked"

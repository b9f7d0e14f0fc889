"""Runs one of tools/ inside a sandbox and parses its report.

The pristine text of the task goes in on stdin, so that it never lies where a submission could change it. A report says
what was found about a submission; NoReport means that nothing is known about it.
"""

import hmac
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from agent.config import JudgeConfig
from agent.errors import JudgeError
from agent.judging.ahead import LIFE_S, SIGNALS
from agent.judging.reports import (
    BuildReport,
    InspectReport,
    ProfileReport,
    SanitizeReport,
    TaskReport,
    Verdict,
    VerifyReport,
    WarmReport,
)
from agent.sandbox.base import CACHE, TOOLS, WORKSPACE, ExecResult, ExecStatus, Output, Sandbox
from agent.tasks.task import Task

Target = Literal["cpu", "cuda"]
R = TypeVar("R", bound=BaseModel)
STDERR_CHARS: Final = 2000
LONGEST_LINE: Final = 4 << 20
HANDED: Final = f"{WORKSPACE}/submission"
"""Where a submission comes to lie that was not there when the sandbox was opened."""


@dataclass(frozen=True)
class Rules:
    """What verify, profile and judge are told about the task's side conditions."""

    target: Target
    policy: Literal["strict", "open"] = "strict"
    precision: Literal["strict", "tf32", "bf16"] = "strict"

    @classmethod
    def of(cls, config: JudgeConfig, *, target: Target) -> "Rules":
        return cls(target=target, policy=config.policy, precision=config.precision)

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--target", self.target, "--policy", self.policy, "--precision", self.precision)


class NoReport(JudgeError):
    """A tool ended without a report: timed out, was killed, or printed something else."""

    def __init__(self, message: str, *, status: ExecStatus, stderr_tail: str) -> None:
        super().__init__(message, hint=_last_line(stderr_tail))
        self.status = status
        self.stderr_tail = stderr_tail


def run_build(sandbox: Sandbox, *, target: Target, timeout_s: float, log: Path | None = None) -> BuildReport:
    """tools/build.py on the sandbox's workspace."""
    flags = ("--workspace", WORKSPACE, "--target", target, "--cache", CACHE)
    return _run(sandbox, "build", flags, BuildReport, timeout_s=timeout_s, log=log)


def run_verify(
    sandbox: Sandbox, task: Task, rules: Rules, *, timeout_s: float, log: Path | None = None
) -> VerifyReport:
    """tools/verify.py: correctness and policy."""
    return _run(sandbox, "verify", _workspace_flags(rules), VerifyReport, timeout_s=timeout_s, log=log, task=task)


def run_profile(
    sandbox: Sandbox, task: Task, rules: Rules, *, timeout_s: float, log: Path | None = None
) -> ProfileReport:
    """tools/profiling.py: verified and timed against eager and torch.compile."""
    return _run(sandbox, "profiling", _workspace_flags(rules), ProfileReport, timeout_s=timeout_s, log=log, task=task)


def run_inspection(
    sandbox: Sandbox, task: Task, *, counters: bool, code: str, timeout_s: float, log: Path | None = None
) -> InspectReport:
    """tools/inspect_kernels.py: where the time of a submission goes on a GPU; `code` names kernels to disassemble."""
    flags = ["--workspace", WORKSPACE, "--cache", CACHE, *(["--counters"] if counters else [])]
    flags += [f"--code={code}"] if code else []
    return _run(sandbox, "inspect_kernels", flags, InspectReport, timeout_s=timeout_s, log=log, task=task)


def run_sanitizer(
    sandbox: Sandbox,
    task: Task,
    *,
    checks: Sequence[str] = (),
    limit_s: float | None = None,
    timeout_s: float,
    log: Path | None = None,
) -> SanitizeReport:
    """tools/sanitize.py: bad accesses, races, reads of unwritten memory; `limit_s` bounds each run of the checker."""
    flags = ["--workspace", WORKSPACE, "--cache", CACHE]
    flags += [f"--checks={','.join(checks)}"] if checks else []
    flags += [f"--limit-s={limit_s:g}"] if limit_s is not None else []
    return _run(sandbox, "sanitize", flags, SanitizeReport, timeout_s=timeout_s, log=log, task=task)


def run_judge(
    sandbox: Sandbox,
    task: Task,
    rules: Rules,
    *,
    reward: Literal["interval", "paper"] = "interval",
    timeout_s: float,
    log: Path | None = None,
    awaits_device: bool = False,
) -> Verdict:
    """tools/judge.py, in a sandbox that the model never touched; `awaits_device`: it is told by a signal (ahead.py)."""
    flags = (*_workspace_flags(rules), "--reward", reward)
    flags += ("--signals", SIGNALS, "--await", "device") if awaits_device else ()
    return _run(sandbox, "judge", flags, Verdict, timeout_s=timeout_s, log=log, task=task)


def run_standby(
    sandbox: Sandbox,
    task: Task,
    rules: Rules,
    *,
    awaited: Sequence[str],
    reward: Literal["interval", "paper"] = "interval",
    log: Path | None = None,
    reported: Callable[[ExecResult], None] = lambda result: None,
) -> ExecResult:
    """tools/standby.py until it has served a submission: the report is in the result, see parse_report.

    `reported` gets it once it is there: on a GPU the processes take most of a second to end.
    """
    flags = ("--workspace", HANDED, *rules.flags, "--reward", reward, "--cache", CACHE, "--signals", SIGNALS)
    waits = [flag for name in awaited for flag in ("--await", name)]
    argv = (sandbox.python, "-I", f"{TOOLS}/standby.py", *flags, *waits)
    return _run_signed(sandbox, argv, task, timeout_s=LIFE_S, log=log, signed=_Signed(reported))


class _Signed:
    """Finds the report in what a tool prints: the line that is signed with this run's key (tools/referee/signing.py).

    Only the process that read the key can have written it; a submission can write into the same pipe.
    """

    def __init__(self, reported: Callable[[ExecResult], None] = lambda result: None) -> None:
        self._key = secrets.token_bytes(32)
        self._reported = reported
        self._heard = bytearray()
        self._report: bytes | None = None

    def stdin(self, task: Task) -> bytes:
        return json.dumps({"model_py": task.text, "report_key": self._key.hex()}).encode("ascii")

    def heard(self, data: bytes) -> None:
        if self._report is not None:
            return
        self._heard += data
        *lines, rest = self._heard.split(b"\n")
        self._heard = rest if len(rest) <= LONGEST_LINE else rest[:1]  # too long for a report, whatever follows
        for line in lines:
            if self._is_signed(line):
                self._report = bytes(line.partition(b" ")[2])
                self._reported(self.result())
                return

    def _is_signed(self, line: bytearray) -> bool:
        signature, _, report = bytes(line).partition(b" ")
        return hmac.compare_digest(signature, hmac.digest(self._key, report, "sha256").hex().encode())

    def result(self, ended: ExecResult | None = None) -> ExecResult:
        """A tool that ended well with its report; without one how it ended, and nothing of what it printed.

        How a tool ended that has written a signed line does not matter: the line is its last word, and nobody else's.
        """
        if self._report is not None:
            return ExecResult("exited", 0, Output(self._report, b"", 0), Output(b"", b"", 0), 0.0)
        assert ended is not None
        return replace(ended, stdout=Output(b"", b"", 0))


def run_inspect(sandbox: Sandbox, task: Task, *, target: Target, timeout_s: float) -> TaskReport:
    """tools/inspect_task.py: whether the task can be one at all."""
    return _run(sandbox, "inspect_task", ("--target", target), TaskReport, timeout_s=timeout_s, task=task)


def run_warm(sandbox: Sandbox, task: Task, *, target: Target, timeout_s: float) -> WarmReport:
    """tools/warm_cache.py, in a sandbox where the cache is mounted writable and no submission is."""
    return _run(sandbox, "warm_cache", ("--out", CACHE, "--target", target), WarmReport, timeout_s=timeout_s, task=task)


def run_objects(sandbox: Sandbox, *, target: Target, timeout_s: float, out: str | None) -> WarmReport:
    """tools/warm_cache.py on a submission's sources: their objects into `out`, or (None) the names of these."""
    flags = ["--workspace", WORKSPACE, "--cache", CACHE, "--target", target]
    flags += ["--names", "--out", "/nowhere"] if out is None else ["--out", out]
    return _run(sandbox, "warm_cache", flags, WarmReport, timeout_s=timeout_s)


def _workspace_flags(rules: Rules) -> tuple[str, ...]:
    return ("--workspace", WORKSPACE, *rules.flags, "--cache", CACHE)


def _run(
    sandbox: Sandbox,
    tool: str,
    flags: Sequence[str],
    kind: type[R],
    *,
    timeout_s: float,
    log: Path | None = None,
    task: Task | None = None,
) -> R:
    argv = (sandbox.python, "-I", f"{TOOLS}/{tool}.py", *flags)
    if task is None:  # then nothing is executed that is not this project's or a compiler
        result = sandbox.exec(argv, timeout_s=timeout_s, log=log)
    else:
        result = _run_signed(sandbox, argv, task, timeout_s=timeout_s, log=log, signed=_Signed())
    return parse_report(tool, result, kind, timeout_s)


def _run_signed(
    sandbox: Sandbox, argv: Sequence[str], task: Task, *, timeout_s: float, log: Path | None, signed: _Signed
) -> ExecResult:
    ended = sandbox.exec(argv, timeout_s=timeout_s, stdin=signed.stdin(task), log=log, heard=signed.heard)
    return signed.result(ended)


def parse_report(tool: str, result: ExecResult, kind: type[R], timeout_s: float) -> R:
    """What a tool that has ended printed. Raises NoReport."""
    stderr = result.stderr.text()[-STDERR_CHARS:]
    if result.status != "exited":
        what = f"took longer than {timeout_s:.0f} s" if result.status == "timeout" else "ran out of memory"
        raise NoReport(f"{tool} {what}", status=result.status, stderr_tail=stderr)
    try:
        return kind.model_validate(json.loads(result.stdout.text()))
    except ValidationError as error:
        first = error.errors()[0]
        what = f"gave a report that is not valid: {'.'.join(map(str, first['loc']))}: {first['msg']}"
    except ValueError:
        what = f"ended with exit code {result.exit_code} and without a report"
    raise NoReport(f"{tool} {what}", status=result.status, stderr_tail=stderr)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip()[:300] if lines else ""

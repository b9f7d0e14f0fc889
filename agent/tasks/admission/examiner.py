"""One sandbox in which candidates are examined, many in one call, by tools/admit_task.py."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.assets import asset
from agent.config import Config
from agent.errors import JudgeError
from agent.judging.reports import Reason
from agent.judging.sandboxes import sandbox_limits
from agent.judging.tool_runs import Target
from agent.sandbox.base import TOOLS, WORKSPACE, ExecResult, Mount, Sandbox, SandboxSpec
from agent.sandbox.open import open_sandbox
from agent.tasks.synthesis.operators import Catalogue, catalogue, without

ONE_S: Final = 90.0
START_S: Final = 120.0
BASE_GB: Final = 2.5  # address space of a process that has imported torch and compiles


class CandidateReport(BaseModel):
    """What tools/admit_task.py says about one candidate. `flags` are remarks on one that is admitted or was on the way
    to it; `facts` hold times in milliseconds, bytes, FLOPs and shapes as far as it came.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    id: str
    status: Literal["admitted", "refused", "error"]
    stage: str
    reasons: tuple[Reason, ...] = ()
    flags: tuple[Reason, ...] = ()
    facts: Mapping[str, Any] = {}
    seconds: float = 0.0

    @property
    def code(self) -> str:
        return self.reasons[0].code if self.reasons else ""

    @property
    def detail(self) -> str:
        return self.reasons[0].detail if self.reasons else ""


@dataclass(frozen=True)
class Examination:
    """How candidates are examined. `lanes` candidates at once; 0 means one per core. `flagged_uncompiled`: what has a
    flag is not compiled any more, for whoever drops it anyway.
    """

    lanes: int = 0
    timeout_s: float = ONE_S
    low_ms: float = 1.0
    high_ms: float = 100.0
    compile: bool = True
    flagged_uncompiled: bool = False
    memory_gb: float | None = None


class Examiner:
    """Examines candidates and says which operators exist, all inside one sandbox."""

    def __init__(self, sandbox: Sandbox, *, target: Target, memory_gb: float) -> None:
        self.sandbox = sandbox
        self.target = target
        self.memory_gb = memory_gb

    def examine(self, texts: Mapping[str, str], how: Examination) -> dict[str, CandidateReport]:
        """A report for every id. A candidate that got none, because the tool itself ended, has the status error."""
        lines = "".join(json.dumps({"id": id, "model_py": text}) + "\n" for id, text in texts.items())
        limit = START_S + how.timeout_s * len(texts)
        result = self.sandbox.exec(
            self._argv("admit_task", *self._flags(how)), timeout_s=limit, stdin=lines.encode("ascii")
        )
        found = {report.id: report for report in _reports(result)}
        if not found:
            raise JudgeError("admit_task gave no report", hint=_last_line(result))
        return {id: found.get(id) or _unknown(id, result) for id in texts}

    def command(self, how: Examination, *more: str) -> tuple[str, ...]:
        """The tool's, for whoever feeds it otherwise."""
        return self._argv("admit_task", *self._flags(how), *more)

    def operators(self) -> tuple[Catalogue, dict[str, str]]:
        """The catalogue less what the installed versions lack, and these versions. Raises JudgeError."""
        names = sorted({operator.name for operator in catalogue().operators})
        result = self.sandbox.exec(
            self._argv("crawl_operators", "--present"), timeout_s=START_S, stdin=json.dumps(names).encode("ascii")
        )
        try:
            report = json.loads(result.stdout.text())
            return without(set(report["missing"])), dict(report["versions"])
        except (ValueError, KeyError) as error:
            raise JudgeError("the sandbox does not say which operators it has", hint=_last_line(result)) from error

    def _argv(self, tool: str, *flags: str) -> tuple[str, ...]:
        return (self.sandbox.python, "-I", f"{TOOLS}/{tool}.py", *flags)

    def _flags(self, how: Examination) -> Sequence[str]:
        memory = how.memory_gb or self.memory_gb
        flags = ["--target", self.target, "--scratch", WORKSPACE, "--memory-gb", f"{memory:g}"]
        flags += ["--lanes", str(how.lanes), "--timeout-s", f"{how.timeout_s:g}"]
        flags += ["--low-ms", f"{how.low_ms:g}", "--high-ms", f"{how.high_ms:g}"]
        flags += ["--flagged-uncompiled"] if how.flagged_uncompiled else []
        return flags if how.compile else [*flags, "--no-compile"]


@contextlib.contextmanager
def open_examiner(config: Config, *, target: Target, scratch: Path, mounts: Sequence[Mount] = ()) -> Iterator[Examiner]:
    """`scratch` is a folder of the host that becomes the sandbox's workspace; torch.compile's cache lies in it."""
    scratch.mkdir(parents=True, exist_ok=True)
    spec = SandboxSpec(
        workspace=scratch,
        mounts=(Mount(asset("tools"), TOOLS), *mounts),
        limits=sandbox_limits(config.sandbox),
        gpus="all" if target == "cuda" else "none",
    )
    sandbox = open_sandbox(config.sandbox, spec, target=target)
    try:
        yield Examiner(sandbox, target=target, memory_gb=BASE_GB + config.sandbox.memory_gb / 2)
    finally:
        sandbox.close()


def _reports(result: ExecResult) -> Iterator[CandidateReport]:
    for line in result.stdout.text().splitlines():
        try:
            yield CandidateReport.model_validate(json.loads(line))
        except (ValueError, ValidationError):
            continue


def _unknown(id: str, result: ExecResult) -> CandidateReport:
    what = {"timeout": "the examination took too long", "oom": "the sandbox ran out of memory"}
    detail = what.get(result.status, f"the examination ended with exit code {result.exit_code}")
    return CandidateReport(
        id=id, status="error", stage="starting", reasons=(Reason(code="runtime.infrastructure", detail=detail),)
    )


def _last_line(result: ExecResult) -> str:
    lines = result.stderr.text().strip().splitlines()
    return lines[-1][:300] if lines else f"exit code {result.exit_code}"

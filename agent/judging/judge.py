"""The host side of the judge: a fresh sandbox, the submission read-only in it, the referee's report out of it.

Covers: nothing of the episode's sandbox (processes, caches, /tmp) reaches the judgement; the submission is a clean copy
made by the host, the task text is the pristine one. A sandbox that stood by is as fresh: it is opened for one
submission and entered by no command; the folder of builds that it shares with the episode's is not used. Not covered
here: what the referee checks; see tools/judge.py.
"""

import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from agent.config import Config
from agent.errors import JudgeError, SandboxError
from agent.judging.ahead import LIFE_S, Ahead, signals
from agent.judging.cache import warm
from agent.judging.reports import Reason, Verdict
from agent.judging.sandboxes import Opened, judging_sandbox
from agent.judging.submission import prepare_workspace
from agent.judging.target import resolve_target
from agent.judging.tool_runs import NoReport, Rules, run_judge
from agent.judging.winner import look_again
from agent.sandbox.base import Mount, Sandbox
from agent.sandbox.snapshot import SnapshotError
from agent.sandbox.variables import WithVariables
from agent.tasks.task import Task

KILLED: Final = ("runtime.oom", "build.memory")
Lease = Callable[[], AbstractContextManager[Mapping[str, str] | None]]
"""Holds a device while it is entered; gives the variables that say which GPU it is."""


class Standing(Protocol):
    """Judges one workspace folder in a sandbox that was opened ahead; None where it cannot, for whatever reason."""

    def __call__(
        self,
        workspace: Path,
        variables: Mapping[str, str],
        *,
        timeout_s: float,
        log: Path | None,
        opened: Opened | None,
    ) -> Verdict | None: ...


def judge_submission(
    config: Config,
    task: Task,
    submission: Path,
    *,
    log: Path | None = None,
    opened: Opened | None = None,
    lease: Lease = nullcontext,
    standing: Standing | None = None,
) -> Verdict:
    """The verdict on a workspace folder or a single model_new.py.

    `lease` is entered when the device is needed: a GPU once the submission is built, all cores before that.

    `standing` judges in a sandbox that was opened ahead. Only what it accepts counts; everything else is judged again.

    Infrastructure trouble is tried once more; then JudgeError (or SandboxError): nothing is known about the submission.
    So is what was killed: the kernel ends the largest process when memory is short, whoever has taken it.
    """
    with tempfile.TemporaryDirectory(prefix="agent-judge-") as scratch:
        try:
            workspace = prepare_workspace(submission, Path(scratch) / "submission")
        except SnapshotError as error:
            return _rejected(config, Reason(code="load.submission", detail=str(error)))
        cache = warm(config, task, opened=opened)
        rules = Rules.of(config.judge, target=resolve_target(config.judge))
        case = _Case(config, task, rules, workspace, cache, log, opened, lease)
        if standing is not None and (verdict := _by_standing(case, standing)) is not None:
            return verdict
        try:
            verdict = _judge_once(case)
            if not is_trouble(verdict) and not _may_be_the_machines(verdict):
                return verdict
        except (JudgeError, SandboxError):
            pass
        return _judge_once(replace(case, log=_beside(log, "again")))


def is_trouble(verdict: Verdict) -> bool:
    """Whether the judge itself stumbled. A task that cannot be judged (task.*) would not be the next time either."""
    return verdict.verdict == "error" and not all(reason.code.startswith("task.") for reason in verdict.reasons)


def _may_be_the_machines(verdict: Verdict) -> bool:
    """Whether a rejection is what a machine that is short of memory makes of a right submission."""
    return verdict.verdict == "rejected" and any(reason.code in KILLED for reason in verdict.reasons)


def _rejected(config: Config, reason: Reason) -> Verdict:
    """What cannot even be copied is not worth a sandbox."""
    rules = Rules.of(config.judge, target=resolve_target(config.judge))
    return Verdict(
        schema_version=1,
        verdict="rejected",
        reasons=(reason,),
        correct=False,
        reward=-1,
        target=rules.target,
        policy=rules.policy,
        precision=rules.precision,
    )


@dataclass(frozen=True)
class _Case:
    config: Config
    task: Task
    rules: Rules
    workspace: Path
    cache: Path
    log: Path | None
    opened: Opened | None
    lease: Lease

    def sandbox(self, *mounts: Mount) -> AbstractContextManager[Sandbox]:
        return judging_sandbox(
            self.config,
            target=self.rules.target,
            workspace=self.workspace,
            cache=self.cache,
            opened=self.opened,
            mounts=mounts,
        )

    def judged(self, sandbox: Sandbox, *, timeout_s: float, awaits_device: bool = False) -> Verdict:
        reward = self.config.judge.reward
        return run_judge(
            sandbox,
            self.task,
            self.rules,
            reward=reward,
            timeout_s=timeout_s,
            log=self.log,
            awaits_device=awaits_device,
        )


def _beside(log: Path | None, what: str) -> Path | None:
    """A log of its own for each try: the first one says why there was another."""
    return log and log.with_stem(f"{log.stem}-{what}")


def _by_standing(case: _Case, standing: Standing) -> Verdict | None:
    with case.lease() as variables:
        limit_s = case.config.limits.judge_timeout_s
        log = _beside(case.log, "standing")
        verdict = standing(case.workspace, variables or {}, timeout_s=limit_s, log=log, opened=case.opened)
        if verdict is None or verdict.verdict != "accepted":
            return None
        if case.rules.target == "cpu" or not case.config.judge.memcheck:
            return verdict
        with case.sandbox() as sandbox:
            return look_again(WithVariables(sandbox, variables or {}), case.task, verdict, log=case.log)


def _judge_once(case: _Case) -> Verdict:
    if case.rules.target == "cuda":
        return _judge_on_gpu(case)
    # Building and importing would disturb whoever is timed on these cores: all of it happens in the lease.
    with case.lease() as variables, case.sandbox() as sandbox:
        told = WithVariables(sandbox, variables or {})
        return case.judged(told, timeout_s=case.config.limits.judge_timeout_s)


def _judge_on_gpu(case: _Case) -> Verdict:
    """The sandbox starts, torch is imported and the submission is built while others use the GPU."""
    limit_s = case.config.limits.judge_timeout_s
    with signals() as told, case.sandbox(told.mount) as sandbox:
        judge = Ahead[Verdict](lambda tell: tell(case.judged(sandbox, timeout_s=LIFE_S, awaits_device=True)))
        try:
            if not judge.wait_until(lambda: told.has("idle")):
                return judge.result(timeout_s=limit_s, give_up=sandbox.close)
            with case.lease() as variables:
                told.tell("device", variables or {})
                verdict = judge.result(timeout_s=limit_s, give_up=sandbox.close)
                if not case.config.judge.memcheck:
                    return verdict
                return look_again(WithVariables(sandbox, variables or {}), case.task, verdict, log=case.log)
        except TimeoutError as error:
            raise NoReport(f"judge {error}", status="timeout", stderr_tail="") from error

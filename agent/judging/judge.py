"""The host side of the judge: a fresh sandbox, the submission read-only in it, the referee's report out of it.

Covers: nothing of the episode's sandbox (processes, caches, /tmp) reaches the judgement; the submission is a clean copy
made by the host, the task text is the pristine one. Not covered here: what the referee checks; see tools/judge.py.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from agent.config import Config
from agent.errors import JudgeError, SandboxError
from agent.judging.cache import warm
from agent.judging.reports import Reason, Verdict
from agent.judging.sandboxes import Opened, judging_sandbox
from agent.judging.submission import prepare_workspace
from agent.judging.target import resolve_target
from agent.judging.tool_runs import Rules, run_judge
from agent.judging.winner import look_again
from agent.sandbox.snapshot import SnapshotError
from agent.sandbox.variables import WithVariables
from agent.tasks.task import Task

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def judge_submission(
    config: Config,
    task: Task,
    submission: Path,
    *,
    log: Path | None = None,
    opened: Opened | None = None,
    variables: Mapping[str, str] = NOTHING,
) -> Verdict:
    """The verdict on a workspace folder or a single model_new.py; `variables` say which GPU is held for it.

    Infrastructure trouble is tried once more; then JudgeError (or SandboxError): nothing is known about the submission.
    """
    with tempfile.TemporaryDirectory(prefix="agent-judge-") as scratch:
        try:
            workspace = prepare_workspace(submission, Path(scratch) / "submission")
        except SnapshotError as error:
            return _rejected(config, Reason(code="load.submission", detail=str(error)))
        cache = warm(config, task, opened=opened)
        try:
            verdict = _judge_once(config, task, workspace, cache, log, opened, variables)
            if not is_trouble(verdict):
                return verdict
        except (JudgeError, SandboxError):
            pass
        return _judge_once(config, task, workspace, cache, log, opened, variables)


def is_trouble(verdict: Verdict) -> bool:
    """Whether the judge itself stumbled. A task that cannot be judged (task.*) would not be the next time either."""
    return verdict.verdict == "error" and not all(reason.code.startswith("task.") for reason in verdict.reasons)


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


def _judge_once(
    config: Config,
    task: Task,
    workspace: Path,
    cache: Path,
    log: Path | None,
    opened: Opened | None,
    variables: Mapping[str, str],
) -> Verdict:
    rules = Rules.of(config.judge, target=resolve_target(config.judge))
    with judging_sandbox(config, target=rules.target, workspace=workspace, cache=cache, opened=opened) as sandbox:
        told = WithVariables(sandbox, variables)
        verdict = run_judge(
            told, task, rules, reward=config.judge.reward, timeout_s=config.limits.judge_timeout_s, log=log
        )
        return look_again(told, task, verdict, log=log) if config.judge.memcheck else verdict

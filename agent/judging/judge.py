"""The host side of the judge: a fresh sandbox, the submission read-only in it, the referee's report out of it.

Covers: nothing of the episode's sandbox (processes, caches, /tmp) reaches the judgement; the submission is a clean copy
made by the host, the task text is the pristine one. Not covered here: what the referee checks; see tools/judge.py.
"""

import tempfile
from pathlib import Path

from agent.config import Config
from agent.errors import JudgeError, SandboxError
from agent.judging.cache import warm
from agent.judging.reports import Verdict
from agent.judging.sandboxes import Opened, judging_sandbox
from agent.judging.submission import prepare_workspace
from agent.judging.target import resolve_target
from agent.judging.tool_runs import Rules, run_judge
from agent.tasks.task import Task

ATTEMPTS = 2


def judge_submission(
    config: Config, task: Task, submission: Path, *, log: Path | None = None, opened: Opened | None = None
) -> Verdict:
    """The verdict on a workspace folder or a single model_new.py.

    Infrastructure trouble is tried once more; then JudgeError (or SandboxError): nothing is known about the submission.
    """
    cache = warm(config, task, opened=opened)
    with tempfile.TemporaryDirectory(prefix="agent-judge-") as scratch:
        workspace = prepare_workspace(submission, Path(scratch) / "submission")
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return _judge_once(config, task, workspace, cache, log, opened)
            except (JudgeError, SandboxError):
                if attempt == ATTEMPTS:
                    raise
    raise AssertionError("unreachable")


def _judge_once(
    config: Config, task: Task, workspace: Path, cache: Path, log: Path | None, opened: Opened | None
) -> Verdict:
    rules = Rules.of(config.judge, target=resolve_target(config.judge))
    with judging_sandbox(config, target=rules.target, workspace=workspace, cache=cache, opened=opened) as sandbox:
        return run_judge(
            sandbox,
            task,
            rules,
            reward=config.judge.reward,
            timeout_s=config.limits.judge_timeout_s,
            log=log,
        )

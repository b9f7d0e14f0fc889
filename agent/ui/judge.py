"""`agent judge`: one submission, one verdict; with --json standard output is exactly one JSON object."""

import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.batch.leases import device_of
from agent.config import Config, default_files, load_config
from agent.errors import EXIT_INFRASTRUCTURE, AgentError, ConfigError, TaskError
from agent.judging.judge import judge_submission
from agent.judging.reports import Reason, Verdict
from agent.judging.submission import ENTRY
from agent.judging.target import resolve_target
from agent.tasks.task import Task, load_task
from agent.ui.console import make_console, print_error
from agent.ui.tables import print_verdict

_EXIT_CODES: Final = {"accepted": 0, "rejected": 1, "error": EXIT_INFRASTRUCTURE}


def run_judge(
    paths: Sequence[Path],
    *,
    files: Sequence[Path],
    settings: Sequence[str],
    flags: Mapping[str, Any],
    json: bool,
) -> int:
    """0 accepted, 1 rejected, 3 infrastructure or unjudgeable; usage errors are raised (exit code 2)."""
    config = load_config(files=(*default_files(Path.cwd()), *files), settings=settings, flags=flags)
    task_path, submission = submission_paths(paths)
    task = load_task(task_path)
    try:
        verdict = _judged(config, task, submission, json=json)
    except ConfigError:
        raise
    except AgentError as error:
        # The task itself may be at fault (it raises, it hangs): unjudgeable, as the contract calls it.
        print_error(error)
        if json:
            sys.stdout.write(_no_verdict(config, error).model_dump_json() + "\n")
        return EXIT_INFRASTRUCTURE
    if json:
        sys.stdout.write(verdict.model_dump_json() + "\n")
    else:
        print_verdict(make_console(), task.name, verdict)
    return _EXIT_CODES[verdict.verdict]


def submission_paths(paths: Sequence[Path]) -> tuple[Path, Path]:
    """(model.py, submission) from WORKSPACE or MODEL.py MODEL_NEW.py, with the kernels/ beside model_new.py. Raises
    ConfigError.
    """
    if len(paths) == 2:
        task, submission = paths
        for path in paths:
            if not path.is_file():
                raise ConfigError(f"there is no file {path}")
        folder = submission.parent
        return task, folder if submission.name == ENTRY and (folder / "kernels").is_dir() else submission
    if len(paths) != 1:
        raise ConfigError("give WORKSPACE, or MODEL.py MODEL_NEW.py")
    workspace = paths[0]
    if workspace.is_file():
        raise ConfigError(f"{workspace} is a file", hint="give MODEL.py MODEL_NEW.py, or a workspace folder")
    if not workspace.is_dir():
        raise ConfigError(f"there is no folder {workspace}")
    for name in ("model.py", ENTRY):
        if not (workspace / name).is_file():
            raise ConfigError(f"{workspace} has no {name}", hint="a workspace holds model.py, model_new.py, kernels/")
    return workspace / "model.py", workspace


def _judged(config: Config, task: Task, submission: Path, *, json: bool) -> Verdict:
    console = make_console(stderr=True)
    with contextlib.ExitStack() as stack:
        if not json and console.is_terminal:
            stack.enter_context(console.status(f"judging {task.name}"))
        return judge_submission(config, task, submission, lease=lambda: device_of(config))


def _no_verdict(config: Config, error: AgentError) -> Verdict:
    code = "task.invalid" if isinstance(error, TaskError) else "runtime.infrastructure"
    return Verdict(
        schema_version=1,
        verdict="error",
        reasons=(Reason(code=code, detail=str(error)),),
        correct=None,
        reward=None,
        target=resolve_target(config.judge),
        policy=config.judge.policy,
        precision=config.judge.precision,
    )

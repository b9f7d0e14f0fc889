"""The trusted cache of precompiled headers and compiled baselines: filled once, outside any submission's reach.

It is filled in a sandbox that holds no submission and mounted read-only everywhere else, so that no submission can
change what the judge or a baseline is built from. A task's own code is trusted here: it is the reference.
"""

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agent.config import Config, cache_home
from agent.errors import ConfigError, JudgeError, TaskError, UnclearTask
from agent.judging.sandboxes import Opened, trusted_sandbox
from agent.judging.target import resolve_target
from agent.judging.tool_runs import NoReport, Target, run_inspect, run_warm
from agent.judging.version import tools_sha256
from agent.locks import FOREVER, locked
from agent.sandbox.open import choose_kind
from agent.tasks.task import Task

DOUBTFUL: Final = frozenset({"task.hangs", "task.out_of_memory", "task.no_cuda_device"})
"""What speaks against a task, or against a busy machine: the next time it may be otherwise."""


def warm(config: Config, task: Task, *, opened: Opened | None = None) -> Path:
    """The cache folder for this task and sandbox, filled if it was not. Raises ConfigError where it cannot be written.

    A cache that could not be filled is used as it is: what is missing is then compiled again and again.
    """
    target = resolve_target(config.judge)
    folder = _made(cache_folder(config, target))
    done = _mark(folder, task, "warm")
    if done.exists():  # not behind the lock: whoever judges holds a device, and would wait for another task's filling
        return folder
    with _locked(folder):
        if not done.exists():
            _fill(config, task, target, folder, done, opened)
    return folder


def inspect(config: Config, task: Task, *, opened: Opened | None = None) -> None:
    """Run the task's own code once in a sandbox. Raises TaskError with one line when it cannot be a task.

    What was found good is not looked at again: every further sample of a task begins at once.
    """
    target = resolve_target(config.judge)
    folder = _made(cache_folder(config, target))
    good = _mark(folder, task, "inspected")
    with _locked(good):
        if good.exists():
            return
        _inspect(config, task, target, folder, opened)
        with contextlib.suppress(OSError):  # a full disk: it is looked at again
            good.touch()


def cache_folder(config: Config, target: Target) -> Path:
    """Named after the sandbox' kind and what it runs; the tools name its entries after compilers, torch and sources."""
    kind = choose_kind(config.sandbox, target=target)
    parts = (target, kind, config.sandbox.image, config.sandbox.python)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return cache_home() / f"{kind}-{target}-{key}"


def _mark(folder: Path, task: Task, what: str) -> Path:
    """An empty file that says what was done for this task with these tools; no sandbox sees it."""
    return folder.with_name(f"{folder.name}.{task.sha256[:16]}-{tools_sha256()[:16]}.{what}")


def _inspect(config: Config, task: Task, target: Target, folder: Path, opened: Opened | None) -> None:
    with trusted_sandbox(config, target=target, cache=folder, opened=opened) as sandbox:
        try:
            report = run_inspect(sandbox, task, target=target, timeout_s=config.limits.tool_timeout_s)
        except NoReport as error:
            if error.status == "exited":
                raise
            raise UnclearTask(f"{task.path.name}: {error.message}") from error
    if report.status == "ok":
        return
    first = report.reasons[0] if report.reasons else None
    detail = " ".join(f"{first.detail} [{first.code}]".split()) if first else "no reason was given"
    if report.status == "error":
        raise JudgeError(f"{task.path.name} could not be inspected: {detail}")
    kind = UnclearTask if first and first.code in DOUBTFUL else TaskError
    raise kind(f"{task.path.name} cannot be a task: {detail}")


def _fill(config: Config, task: Task, target: Target, folder: Path, done: Path, opened: Opened | None) -> None:
    with trusted_sandbox(config, target=target, cache=folder, opened=opened) as sandbox:
        try:
            report = run_warm(sandbox, task, target=target, timeout_s=config.limits.tool_timeout_s)
        except NoReport:
            return
    if report.status == "warm":
        done.touch()


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return folder


def _unwritable(path: Path, error: OSError) -> ConfigError:
    reason = error.strerror or str(error)
    return ConfigError(f"cannot write in the cache folder {path.parent}: {reason}", hint="set CUDA_AGENT_CACHE")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone with `path` on this machine; its lock file lies beside it."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(path.with_name(f"{path.name}.lock"), patience_s=FOREVER))
        except OSError as error:
            raise _unwritable(path, error) from error
        yield

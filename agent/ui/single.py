"""One episode under the eyes of a person or a program: its view, its signals, its report, its exit code."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agent.backends.base import Backend
from agent.batch.leases import DevicePool
from agent.config import Config
from agent.errors import AgentError, JudgeError
from agent.judging.target import resolve_target
from agent.loop.control import Controls
from agent.loop.episode import EpisodeResult, run_episode
from agent.loop.opening import Seed
from agent.tasks.task import Task
from agent.trajectory.folder import RunFolder
from agent.ui.console import print_error
from agent.ui.heading import heading_of
from agent.ui.live import LiveView
from agent.ui.operator import TerminalOperator
from agent.ui.outcome import Outcome, read_outcome, result_object
from agent.ui.progress import Progress
from agent.ui.report import write_report
from agent.ui.signals import handled_signals
from agent.ui.tables import print_outcome, resume_command
from agent.ui.views import JsonView, PlainView, QuietView, View

if TYPE_CHECKING:
    from rich.console import Console

Style = Literal["auto", "plain", "quiet", "json"]


@dataclass(frozen=True)
class Request:
    """What the command line asked for; `flags` maps dotted setting names to values, None where a flag was not given."""

    model: Path | None = None
    resume: Path | None = None
    files: tuple[Path, ...] = ()
    settings: tuple[str, ...] = ()
    flags: Mapping[str, Any] = field(default_factory=dict)
    style: Style = "auto"
    diff: bool = False


@dataclass(frozen=True)
class Invocation:
    """Everything that the episodes of one command share."""

    request: Request
    config: Config
    task: Task
    backend: Backend
    console: "Console"
    interactive: bool
    controls: Controls

    @property
    def machine_readable(self) -> bool:
        return self.request.style == "json"


def run_single(
    invocation: Invocation,
    folder: RunFolder,
    *,
    resume: bool = False,
    reopen: bool = False,
    seed: Seed | None = None,
    tag: str = "",
) -> tuple[int, Outcome]:
    """Run or go on with one episode, `reopen` as for run_episode. `tag` is what each JSON event is marked with where
    there are several runs.
    """
    view = _view(invocation, tag)
    operator = TerminalOperator(invocation.console, view, invocation.controls) if invocation.interactive else None
    with handled_signals(invocation.controls, interactive=invocation.interactive, say=view.say_now) as signals:
        earlier = read_outcome(folder).progress if resume else Progress()
        view.begin(heading_of(invocation.config, invocation.task, folder, invocation.backend), earlier)
        try:
            result = run_episode(
                invocation.config,
                invocation.task,
                folder,
                backend=invocation.backend,
                listener=view,
                operator=operator,
                controls=invocation.controls,
                device=DevicePool.of_machine(resolve_target(invocation.config.judge)).for_job(),
                seed=seed,
                reopen=reopen,
            )
        finally:
            view.close()
    quit_by = signals.quit_by if not result.finished else None
    code = 128 + quit_by if quit_by else result.exit_code
    outcome = conclude(folder, result)
    if invocation.machine_readable:
        view.result(result_object(outcome, code) | {"judge_errors": list(result.judge_errors)})
    else:
        with contextlib.suppress(OSError):
            print_outcome(invocation.console, outcome)
    print_judge_errors(folder, result)
    return code, outcome


def _view(invocation: Invocation, tag: str) -> View:
    style, diff = invocation.request.style, invocation.request.diff
    if style == "json":
        return JsonView(tag=tag)
    if style == "quiet":
        return QuietView()
    if style == "auto" and invocation.console.is_terminal and not invocation.console.is_dumb_terminal:
        return LiveView(invocation.console, show_diff=diff, keys=invocation.interactive)
    return PlainView(show_diff=diff)


def conclude(folder: RunFolder, result: EpisodeResult) -> Outcome:
    """What the episode came to; its reports are written where it has ended."""
    outcome = read_outcome(folder)
    if outcome.finished:
        try:
            write_report(outcome)
        except AgentError as failure:  # a full disk takes the report, not the result
            print_error(failure)
    return outcome


def print_judge_errors(folder: RunFolder, result: EpisodeResult) -> None:
    for error in result.judge_errors:
        print_error(JudgeError(f"could not judge {error}", hint=resume_command(folder.path)))

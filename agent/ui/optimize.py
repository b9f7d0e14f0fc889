"""`agent optimize`: configuration, task and backend are checked first, then one episode after the other runs."""

import contextlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agent.backends.base import Backend
from agent.backends.registry import make_backend
from agent.config import Config, default_files, load_config
from agent.errors import AgentError, ConfigError, JudgeError
from agent.judging.target import resolve_target
from agent.loop.control import Controls
from agent.loop.episode import EpisodeResult, run_episode
from agent.sandbox.open import pinned
from agent.tasks.task import Task, load_task
from agent.trajectory.folder import RunFolder
from agent.ui.console import make_console, print_error
from agent.ui.heading import heading_of
from agent.ui.live import LiveView
from agent.ui.operator import TerminalOperator
from agent.ui.outcome import Outcome, read_outcome, result_object
from agent.ui.preflight import check_sandbox, check_server, check_target
from agent.ui.progress import Progress
from agent.ui.report import write_report
from agent.ui.signals import handled_signals
from agent.ui.tables import print_outcome, print_samples, shell_word
from agent.ui.views import JsonView, Outlet, PlainView, QuietView, View

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


def run_optimize(request: Request) -> int:
    """Returns the exit code: of the best episode, or 128 + n where signal n made it quit."""
    folder = _resumed_folder(request)
    config = _configuration(request, folder)
    task = folder.task() if folder else _task(request)
    invocation = _prepared(request, config, task)
    try:
        return _episodes(invocation, folder)
    finally:
        invocation.backend.close()


def _resumed_folder(request: Request) -> RunFolder | None:
    if request.resume is None:
        return None
    if request.model is not None:
        raise ConfigError("--resume goes on with the task of its run", hint="leave MODEL.py away")
    return RunFolder.open(request.resume)


def _configuration(request: Request, folder: RunFolder | None) -> Config:
    base = (folder.path / "config.json",) if folder else default_files(Path.cwd())
    config = load_config(files=(*base, *request.files), settings=request.settings, flags=request.flags)
    if folder and config.run.samples > 1:
        config = config.model_copy(update={"run": config.run.model_copy(update={"samples": 1})})
    # What is recorded is what was judged, not "auto".
    return config.model_copy(update={"judge": config.judge.model_copy(update={"target": resolve_target(config.judge)})})


def _task(request: Request) -> Task:
    if request.model is None:
        raise ConfigError("no MODEL.py was given", hint="agent optimize path/to/model.py, or --resume RUN")
    return load_task(request.model)


def _prepared(request: Request, config: Config, task: Task) -> Invocation:
    console = make_console(stderr=request.style == "json")
    interactive = request.style in ("auto", "plain") and sys.stdin.isatty() and sys.stdout.isatty()
    if config.run.confirm and not interactive:
        raise ConfigError(
            "--confirm needs a terminal to ask in", hint="run it in a terminal, without --json and --quiet"
        )
    target = resolve_target(config.judge)
    check_target(target)
    config = config.model_copy(update={"sandbox": pinned(config.sandbox, target=target)})
    check_sandbox(config.sandbox, target)
    controls = Controls()
    backend = make_backend(config.backend, task_sha256=task.sha256, cancelled=lambda: controls.leaving)
    check_server(config.backend)
    return Invocation(request, config, task, backend, console, interactive, controls)


def _episodes(invocation: Invocation, resumed: RunFolder | None) -> int:
    codes: list[int] = []
    outcomes: list[Outcome] = []
    for _ in range(invocation.config.run.samples):
        folder = resumed or RunFolder.create(Path(invocation.config.run.output), invocation.task, invocation.config)
        code, outcome = _episode(invocation, folder, resume=resumed is not None)
        codes.append(code)
        outcomes.append(outcome)
        if invocation.controls.leaving:
            break
    if len(outcomes) > 1:
        _summarise(invocation, outcomes)
    if invocation.controls.quit_requested:
        return codes[-1]
    return min(codes)


def _episode(invocation: Invocation, folder: RunFolder, *, resume: bool) -> tuple[int, Outcome]:
    view = _view(invocation)
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
            )
        finally:
            view.close()
    quit_by = signals.quit_by if not result.finished else None
    code = 128 + quit_by if quit_by else result.exit_code
    outcome = _conclude(invocation, folder, result, view, code)
    return code, outcome


def _view(invocation: Invocation) -> View:
    style, diff = invocation.request.style, invocation.request.diff
    if style == "json":
        return JsonView()
    if style == "quiet":
        return QuietView()
    if style == "auto" and invocation.console.is_terminal and not invocation.console.is_dumb_terminal:
        return LiveView(invocation.console, show_diff=diff, keys=invocation.interactive)
    return PlainView(show_diff=diff)


def _conclude(invocation: Invocation, folder: RunFolder, result: EpisodeResult, view: View, code: int) -> Outcome:
    outcome = read_outcome(folder)
    if outcome.finished:
        try:
            write_report(outcome)
        except AgentError as failure:  # a full disk takes the report, not the result
            print_error(failure)
    if invocation.machine_readable:
        view.result(result_object(outcome, code) | {"judge_errors": list(result.judge_errors)})
    else:
        with contextlib.suppress(OSError):
            print_outcome(invocation.console, outcome)
    for error in result.judge_errors:
        print_error(
            JudgeError(f"could not judge {error}", hint=f"agent optimize --resume {shell_word(str(folder.path))}")
        )
    return outcome


def _summarise(invocation: Invocation, outcomes: list[Outcome]) -> None:
    if not invocation.machine_readable:
        print_samples(invocation.console, outcomes)
        return
    runs = [str(o.folder.path) for o in outcomes]
    best = max(range(len(outcomes)), key=lambda i: outcomes[i].rank)
    summary = {"type": "summary", "runs": runs, "best_run": runs[best], "rewards": [o.reward for o in outcomes]}
    Outlet(sys.stdout).line(json.dumps(summary))

"""`agent optimize`: configuration, task and backend are checked first, then one episode runs, or several tries do."""

import sys
from pathlib import Path

from agent.backends.registry import make_backend
from agent.batch.search_folder import SearchFolder
from agent.config import Config, SearchConfig, default_files, load_config
from agent.errors import ConfigError
from agent.judging.target import resolve_target
from agent.loop.control import Controls
from agent.sandbox.open import pinned
from agent.tasks.task import Task, load_task
from agent.trajectory.folder import RunFolder
from agent.trajectory.searched import SETTINGS, is_search, resumable
from agent.ui.console import make_console
from agent.ui.preflight import check_sandbox, check_script, check_server, check_target
from agent.ui.single import Invocation, Request, run_single
from agent.ui.tables import resume_command

__all__ = ["Request", "run_optimize"]


def run_optimize(request: Request) -> int:
    """Returns the exit code: of the best episode, or 128 + n where signal n made it quit."""
    folder = _resumed(request)
    if isinstance(folder, SearchFolder):
        return _run_search(request, folder)
    config = _configuration(request, folder)
    task = folder.task() if folder else _task(request)
    invocation = _prepared(request, config, task)
    try:
        if folder is None and (config.run.samples > 1 or config.search.kind != "none"):
            from agent.ui.tries import run_tries

            return run_tries(invocation)
        run = folder or RunFolder.create(Path(config.run.output), task, invocation.config)
        return run_single(invocation, run, resume=folder is not None, reopen=folder is not None)[0]
    finally:
        invocation.backend.close()


def _run_search(request: Request, search: SearchFolder) -> int:
    """Go on with a search, as it was begun: what may differ is how the server is reached, not what is searched for."""
    from agent.ui.tries import run_tries

    config = load_config(files=(search.path / SETTINGS, *request.files), settings=request.settings, flags=request.flags)
    if config.run.samples != search.config.run.samples or config.search != search.config.search:
        raise ConfigError(f"{search.path} goes on as it was begun", hint="leave --samples and --search away")
    search.config = config
    invocation = _prepared(request, config, search.task)
    try:
        return run_tries(invocation, search=search)
    finally:
        invocation.backend.close()


def _resumed(request: Request) -> RunFolder | SearchFolder | None:
    if request.resume is None:
        return None
    if request.model is not None:
        raise ConfigError("--resume goes on with the task of its run", hint="leave MODEL.py away")
    if is_search(request.resume):
        return SearchFolder.open(request.resume)
    if request.flags.get("search.kind"):
        raise ConfigError("--resume goes on with one run", hint="leave --search away")
    if resumable(request.resume) != request.resume:
        hint = resume_command(request.resume)
        raise ConfigError(f"{request.resume} is a try of a search, which goes on as a whole", hint=hint)
    return RunFolder.open(request.resume)


def _configuration(request: Request, folder: RunFolder | None) -> Config:
    if request.flags.get("run.output") == "":
        raise ConfigError("-o names no folder", hint="leave it away for runs/ in the current folder")
    base = (folder.path / "config.json",) if folder else default_files(Path.cwd())
    config = load_config(files=(*base, *request.files), settings=request.settings, flags=request.flags)
    if folder:
        run = config.run.model_copy(update={"samples": 1})
        config = config.model_copy(update={"run": run, "search": SearchConfig()})
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
    if told := check_server(config.backend):
        # Recorded with the run, so that a resumed one condenses alike.
        config = config.model_copy(update={"backend": config.backend.model_copy(update={"context_tokens": told})})
    backend = make_backend(config.backend, task_sha256=task.sha256, cancelled=lambda: controls.leaving)
    try:
        check_script(backend, target)
    except ConfigError:
        backend.close()
        raise
    return Invocation(request, config, task, backend, console, interactive, controls)

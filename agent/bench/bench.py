"""`agent bench`: judges one submission per task of a suite, one after the other, and writes scores after each.

Resumable: what was judged with the same submission, rules and judge is not judged again; what the judge could not say
is. With a backend the episodes come first, as a collection below the output folder, which is resumable by itself. With
--reference nothing is judged: baselines.py times the references.
"""

import contextlib
import hashlib
import json as json_format
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent.batch.collect import CollectRequest, run_collect
from agent.batch.leases import device_of
from agent.bench import baselines, report
from agent.bench.outcomes import MISSING, Outcome, Outcomes, judged, level_of, not_judged
from agent.bench.submissions import FolderSource, RunsSource, Source, submission_sha256
from agent.config import Config, default_files, expanded, load_config
from agent.errors import EXIT_FASTER, EXIT_INFRASTRUCTURE, EXIT_NOT_FASTER, AgentError, ConfigError, TaskError
from agent.judging.judge import judge_submission
from agent.judging.reports import Reason
from agent.judging.target import resolve_target
from agent.judging.version import tools_sha256
from agent.locks import locked
from agent.sandbox.open import pinned
from agent.tasks.candidates import Refusal
from agent.tasks.sets import load_tasks
from agent.tasks.task import Task
from agent.trajectory.stored import find_runs
from agent.ui.console import print_error, safe
from agent.ui.preflight import check_sandbox, check_target

LOCK: Final = ".bench.lock"


@dataclass(frozen=True)
class BenchRequest:
    """What the command line asked for; exactly one of `submissions`, `reference` and `episodes` says what is judged."""

    suite: str
    output: Path
    submissions: Path | None = None
    reference: bool = False
    episodes: bool = False
    levels: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    workers: int | None = None
    limit: int = 0
    budget_s: float = 0.0
    files: tuple[Path, ...] = ()
    settings: tuple[str, ...] = ()
    flags: Mapping[str, Any] = field(default_factory=dict)
    json: bool = False


def run_bench(request: BenchRequest) -> int:
    """0 all tasks were judged, 1 some are unjudged, 3 none could be. With --reference: measured instead of judged."""
    config = _configuration(request)
    tasks, refused = _tasks(request)
    folder = _made(request.output)
    with _alone(folder):
        if request.reference:
            return _references(request, config, tasks, refused, folder)
        return _submissions(request, config, tasks, refused, folder)


def _references(
    request: BenchRequest, config: Config, tasks: Sequence[Task], refused: Sequence[Refusal], folder: Path
) -> int:
    lanes = request.workers or max(1, (os.cpu_count() or 2) // 2)
    with device_of(config) as variables:
        rows = baselines.measure(
            config,
            request.suite,
            tasks,
            folder,
            lanes=lanes,
            budget_s=request.budget_s,
            variables=variables,
            quiet=request.json,
        )
    if request.json:
        data = baselines.summary(request.suite, tasks, rows)
        data["no_task"] = [{"where": one.where, "code": one.code, "detail": one.detail} for one in refused]
        sys.stdout.write(json_format.dumps(data) + "\n")
    else:
        sys.stdout.write(safe(baselines.markdown(request.suite, tasks, rows)) + f"\n{folder / baselines.TABLES}\n")
    measured = sum(row.status == "measured" for row in rows)
    return EXIT_FASTER if measured == len(tasks) else EXIT_NOT_FASTER if measured else EXIT_INFRASTRUCTURE


def _submissions(
    request: BenchRequest, config: Config, tasks: Sequence[Task], refused: Sequence[Refusal], folder: Path
) -> int:
    source = _source(request, tasks, folder)
    outcomes = Outcomes(folder)
    about = _about(config)
    for task in tasks:
        _one(config, task, source, outcomes, quiet=request.json)
        report.write(folder, request.suite, _present(tasks, outcomes), about=about, refused=refused)
    present = _present(tasks, outcomes)
    if request.json:
        data = report.summary(request.suite, present, about=about, refused=refused)
        sys.stdout.write(json_format.dumps(data) + "\n")
    else:
        text = report.markdown(request.suite, present, about=about, refused=refused)
        sys.stdout.write(safe(text) + f"\n{folder / report.TABLES}\n")
    unjudged = sum(outcome.status == "error" for outcome in present)
    return EXIT_FASTER if not unjudged else EXIT_INFRASTRUCTURE if unjudged == len(present) else EXIT_NOT_FASTER


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Raises ConfigError where another bench works in this folder: both would judge, and write, the same."""
    with locked(folder / LOCK) as held:
        if held is None:
            raise ConfigError(f"another bench works in {folder}", hint="wait for it, or choose another folder with -o")
        yield


def _configuration(request: BenchRequest) -> Config:
    files = (*default_files(Path.cwd()), *request.files)
    config = load_config(files=files, settings=request.settings, flags=request.flags)
    target = resolve_target(config.judge)
    check_target(target)
    sandbox = pinned(config.sandbox, target=target)
    check_sandbox(sandbox, target)
    judge = config.judge.model_copy(update={"target": target})
    return config.model_copy(update={"judge": judge, "sandbox": sandbox})


def _tasks(request: BenchRequest) -> tuple[tuple[Task, ...], tuple[Refusal, ...]]:
    found = load_tasks(request.suite, names=request.names)
    for refusal in found.refused:
        print_error(ConfigError(f"{refusal.where} is no task ({refusal.code}): {refusal.detail}"))
    wanted = {level if level.startswith("level") else f"level{level}" for level in request.levels}
    tasks = tuple(task for task in found.tasks if not wanted or level_of(task.name) in wanted)
    if missing := wanted - {level_of(task.name) for task in tasks}:
        there = ", ".join(sorted({level_of(task.name) for task in found.tasks}))
        raise ConfigError(f"{request.suite} has no {', '.join(sorted(missing))}", hint=f"it has {there}")
    return tasks[: request.limit or None], found.refused


def _made(output: Path) -> Path:
    folder = expanded(output).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot write in {folder}: {error.strerror}", hint="choose another folder with -o"
        ) from error
    return folder


def _source(request: BenchRequest, tasks: Sequence[Task], folder: Path) -> Source:
    if request.submissions is not None:
        return FolderSource.of(request.submissions, tasks)
    return RunsSource(_episodes(request, tasks, folder / "episodes"))


def _episodes(request: BenchRequest, tasks: Sequence[Task], folder: Path) -> dict[str, Path]:
    """One episode a task, each with its judgement at the end; here its best submission is judged once more, alone."""
    collect = CollectRequest(
        tasks=request.suite,
        output=folder,
        names=tuple(task.name for task in tasks),
        workers=request.workers,
        files=request.files,
        settings=request.settings,
        flags=request.flags,
    )
    with contextlib.redirect_stdout(sys.stderr):
        code = run_collect(collect)
    if code not in (EXIT_FASTER, EXIT_NOT_FASTER):
        raise ConfigError("not every task has its episode yet", hint="the same command goes on")
    best: dict[str, Path] = {}
    for run in find_runs([folder]):
        digest = _task_sha256(run.path)
        if digest and (run.path / "best" / "model_new.py").is_file():
            best[digest] = run.path / "best"
    return best


def _task_sha256(run: Path) -> str:
    try:
        return str(json_format.loads((run / "task.json").read_text(encoding="utf-8"))["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _one(config: Config, task: Task, source: Source, outcomes: Outcomes, *, quiet: bool) -> None:
    submission = source.find(task)
    key = _key(config, submission)
    if outcomes.known(task, key) and outcomes.latest[task.name].task_sha256 == task.sha256:
        return
    outcome = _judge(config, task, submission, key)
    outcomes.add(outcome)
    if not quiet:
        sys.stderr.write(safe(_line(outcome)) + "\n")


def _judge(config: Config, task: Task, submission: Path | None, key: str) -> Outcome:
    if submission is None:
        return not_judged(task, "missing", Reason(code=MISSING, detail="nothing was submitted for this task"), key=key)
    began = time.monotonic()
    try:
        verdict = judge_submission(config, task, submission, lease=lambda: device_of(config))
    except ConfigError:
        raise
    except AgentError as error:
        code = "task.invalid" if isinstance(error, TaskError) else "runtime.infrastructure"
        return not_judged(task, "error", Reason(code=code, detail=str(error)), key=key)
    return judged(task, verdict, key=key, seconds=time.monotonic() - began)


def _key(config: Config, submission: Path | None) -> str:
    judge = config.judge
    rules = (judge.target, judge.policy, judge.precision, judge.reward, tools_sha256())
    return hashlib.sha256("\0".join((submission_sha256(submission), *rules)).encode()).hexdigest()


def _present(tasks: Sequence[Task], outcomes: Outcomes) -> list[Outcome]:
    """In the suite's order. What was not reached yet is missing from the tables, and from their denominators."""
    return [outcomes.latest[task.name] for task in tasks if task.name in outcomes.latest]


def _about(config: Config) -> dict[str, Any]:
    judge = config.judge
    return {
        "date": time.strftime("%Y-%m-%d"),
        "target": judge.target,
        "policy": judge.policy,
        "precision": judge.precision,
        "sandbox": config.sandbox.kind,
        "tools": tools_sha256()[:12],
    }


def _line(outcome: Outcome) -> str:
    return " ".join(_words(outcome))


def _words(outcome: Outcome) -> Iterator[str]:
    yield f"{outcome.task}: {outcome.status}"
    if outcome.solved:
        yield f"reward {outcome.reward}"
        yield from (f"{name} {ratio:.2f}x" for name in ("eager", "compile") if (ratio := outcome.ratio(name)))
    elif outcome.reasons:
        yield f"({outcome.reasons[0].code}: {outcome.reasons[0].detail[:160]})"
    yield f"{outcome.seconds:.1f} s"

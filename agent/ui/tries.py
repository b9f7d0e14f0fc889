"""Several tries at one task: `agent optimize --samples N`; with `--search`, the winner is judged again at the end.

One after the other each try is shown as a single episode is; side by side they share one place, and ^C stops them all.
A search has a folder of its own, from which `agent optimize --resume` goes on.
"""

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent.backends.registry import make_backend
from agent.batch.leases import DevicePool
from agent.batch.search import Confirmation, Tried, Try, confirm, run_rounds
from agent.batch.search_folder import SearchFolder
from agent.config import expanded
from agent.errors import (
    EXIT_FASTER,
    EXIT_INFRASTRUCTURE,
    EXIT_NOT_FASTER,
    AgentError,
    ConfigError,
    JudgeError,
    RecordError,
)
from agent.judging.target import resolve_target
from agent.loop.episode import EpisodeResult, run_episode
from agent.loop.waiting import Interrupted
from agent.trajectory.folder import RunFolder
from agent.ui.console import print_error
from agent.ui.heading import heading_of
from agent.ui.outcome import result_object
from agent.ui.rows import JsonRows, LiveRows, PlainRows, QuietRows, Rows
from agent.ui.signals import LeaveState, SignalState, handled_signals, installed
from agent.ui.single import Invocation, conclude, print_judge_errors, run_single
from agent.ui.summaries import STOP_WORDS, verdict_words
from agent.ui.tables import print_samples, print_winner, resume_command
from agent.ui.views import Outlet, write_now

POLL_S: Final = 0.2


def run_tries(invocation: Invocation, *, search: SearchFolder | None = None) -> int:
    """Returns the exit code: of the winner's last judgement, else of the best try, 128 + n where signal n ended it.

    `search` is one that is gone on with.
    """
    if search is None and invocation.config.search.kind != "none":
        search = SearchFolder.create(invocation.task, invocation.config)
    with search.lock() if search else contextlib.nullcontext():
        return _run_tries(invocation, search)


def _run_tries(invocation: Invocation, search: SearchFolder | None) -> int:
    config, workers = invocation.config, _workers(invocation)
    place = search or RunsFolder(expanded(Path(config.run.output)).absolute(), invocation)
    player = SideBySide(invocation, place, workers) if workers > 1 else OneByOne(invocation, place)
    tried = run_rounds(
        config.search,
        config.run.samples,
        play=player.play,
        leaving=lambda: invocation.controls.leaving or bool(player.errors),
    )
    if not tried and search is not None:
        search.discard_empty()
    for error in player.errors[1 if not tried else 0 :]:
        print_error(error)
    if not tried and player.errors:
        raise player.errors[0]
    last = _confirmations(invocation, tried, search, whole=len(tried) == config.run.samples) if search else Last()
    code = _exit_code(tried, last, player)
    _summarise(invocation, tried, last.confirmations, folder=search.path if search else None, code=code)
    return code


@dataclass(frozen=True)
class RunsFolder:
    """Where tries go that do not hang together: each is a run of its own."""

    path: Path
    invocation: Invocation

    def run_for(self, number: int) -> tuple[RunFolder, bool]:
        return RunFolder.create(self.path, self.invocation.task, self.invocation.config), False


Place = SearchFolder | RunsFolder


@dataclass(frozen=True)
class Last:
    """The last judgements, and the signal that ended them, if any."""

    confirmations: Sequence[Confirmation] = ()
    quit_by: int | None = None


class OneByOne:
    """One try after the other, each shown as if it were the only one."""

    def __init__(self, invocation: Invocation, place: Place) -> None:
        self._invocation = invocation
        self._place = place
        self.errors: list[AgentError] = []
        self.quit_code: int | None = None

    def play(self, tries: Sequence[Try]) -> list[Tried]:
        done: list[Tried] = []
        for attempt in tries:
            try:
                run, known = self._place.run_for(attempt.number)
                code, outcome = run_single(self._invocation, run, resume=known, seed=attempt.seed, tag=str(run.path))
            except AgentError as error:  # the next try would meet it too
                self.errors.append(error)
                break
            done.append(Tried(attempt, outcome, code))
            if self._invocation.controls.quit_requested:
                self.quit_code = code
            if self._invocation.controls.leaving:
                break
        return done


@dataclass
class SideBySide:
    """`workers` tries at a time, in threads; what is timed is leased, so that no two measurements run at once."""

    invocation: Invocation
    place: Place
    workers: int
    errors: list[AgentError] = field(default_factory=list, init=False)
    quit_code: int | None = field(default=None, init=False)
    _done: list[Tried] = field(default_factory=list, init=False)

    def play(self, tries: Sequence[Try]) -> list[Tried]:
        rows, self._done = _rows(self.invocation), []
        pool = DevicePool.of_machine(resolve_target(self.invocation.config.judge))
        with handled_signals(self.invocation.controls, interactive=False, say=rows.say_now) as signals:
            rows.begin(
                heading_of(
                    self.invocation.config, self.invocation.task, RunFolder(self.place.path), self.invocation.backend
                )
            )
            try:
                self._play(tries, rows, pool, signals)
            finally:
                rows.close()
        return self._done

    def _play(self, tries: Sequence[Try], rows: Rows, pool: DevicePool, signals: SignalState) -> None:
        with ThreadPoolExecutor(self.workers, thread_name_prefix="try") as threads:
            running = {threads.submit(self._run, attempt, rows, pool): attempt for attempt in tries}
            try:
                while running:
                    # In short waits, so that the main thread runs its signal handlers.
                    for future in wait(running, timeout=POLL_S, return_when=FIRST_COMPLETED).done:
                        self._ended(running.pop(future), future, rows, signals)
            except BaseException:
                self.invocation.controls.request_quit()  # else the threads would be waited for to their end
                raise

    def _run(self, attempt: Try, rows: Rows, pool: DevicePool) -> EpisodeResult | None:
        """In a thread. None where the tries were ended before this one began."""
        invocation = self.invocation
        if invocation.controls.leaving or self.errors:
            return None
        run, _ = self.place.run_for(attempt.number)
        backend = make_backend(
            invocation.config.backend,
            task_sha256=invocation.task.sha256,
            cancelled=lambda: invocation.controls.leaving,
        )
        try:
            return run_episode(
                invocation.config,
                invocation.task,
                run,
                backend=backend,
                listener=rows.feed(str(attempt.number), run.path),
                controls=invocation.controls,
                device=pool.for_job(),
                seed=attempt.seed,
            )
        finally:
            backend.close()

    def _ended(self, attempt: Try, future: "Future[EpisodeResult | None]", rows: Rows, signals: SignalState) -> None:
        name = str(attempt.number)
        try:
            result = future.result()
        except AgentError as error:
            self.errors.append(error)
            rows.ended(name, f"could not run: {error}", good=False)
            return
        if result is None:
            return
        folder = RunFolder(result.run_dir)
        outcome = conclude(folder, result)
        quit_by = signals.quit_by if not result.finished else None
        code = 128 + quit_by if quit_by else result.exit_code
        self.quit_code = code if quit_by else self.quit_code
        rows.result(result_object(outcome, code) | {"judge_errors": list(result.judge_errors)})
        words = verdict_words(outcome.verdict) if outcome.verdict else STOP_WORDS[result.reason]
        rows.ended(name, f"{words}  {folder.run_id}", good=code == EXIT_FASTER)
        print_judge_errors(folder, result)
        self._done.append(Tried(attempt, outcome, code))


def _workers(invocation: Invocation) -> int:
    config = invocation.config
    if config.run.confirm:
        if config.search.workers > 1:
            raise ConfigError("--confirm asks about one episode at a time", hint="leave --workers away")
        return 1
    if config.search.workers:
        return min(config.search.workers, config.run.samples)
    if config.search.kind == "none":
        return 1
    return min(config.run.samples, max(2, (os.cpu_count() or 1) // 2))


def _rows(invocation: Invocation) -> Rows:
    style = invocation.request.style
    if style == "json":
        return JsonRows()
    if style == "quiet":
        return QuietRows()
    if style == "auto" and invocation.console.is_terminal and not invocation.console.is_dumb_terminal:
        return LiveRows(invocation.console)
    return PlainRows()


def _confirmations(invocation: Invocation, tried: Sequence[Tried], search: SearchFolder, *, whole: bool) -> Last:
    """The winner judged again alone, unless a person wants to leave; the record is written either way."""
    if not tried:
        return Last()
    controls = invocation.controls
    if whole and not controls.leaving and (known := search.confirmed(tried)) is not None:
        return Last(known)
    _write(search, tried, ())
    if controls.leaving:
        return Last()
    later = resume_command(search.path)
    state = LeaveState(controls, say=write_now, words=f"leaving: the winner is not judged again; later: {later}")
    with installed(state):
        _rows(invocation).say("judging the winner again, alone")
        try:
            found = confirm(
                invocation.config, invocation.task, tried, folder=search.path, leave=lambda: controls.leaving
            )
        except Interrupted:
            return Last(quit_by=state.quit_by)
    errors = [confirmation.error for confirmation in found if confirmation.error]
    _write(search, tried, found, complete=whole and not errors)
    for error in errors:
        print_error(JudgeError(f"the winner could not be judged again: {error}", hint=later))
    return Last(found, state.quit_by)


def _write(
    search: SearchFolder, tried: Sequence[Tried], found: Sequence[Confirmation], *, complete: bool = False
) -> None:
    try:
        search.write(tried, found, complete=complete)
    except RecordError as failure:  # a full disk takes the record, not the runs
        print_error(failure)


def _exit_code(tried: Sequence[Tried], last_judged: Last, player: OneByOne | SideBySide) -> int:
    if player.quit_code is not None:
        return player.quit_code
    if last_judged.quit_by is not None:
        return 128 + last_judged.quit_by
    confirmations = last_judged.confirmations
    if confirmations:
        last = confirmations[-1]
        if last.error:
            return EXIT_INFRASTRUCTURE
        reward = last.verdict.reward if last.verdict else None
        return EXIT_FASTER if last.accepted and (reward or 0) >= 2 else EXIT_NOT_FASTER
    return min([item.code for item in tried], default=EXIT_INFRASTRUCTURE)


def _summarise(
    invocation: Invocation,
    tried: Sequence[Tried],
    confirmations: Sequence[Confirmation],
    *,
    folder: Path | None,
    code: int,
) -> None:
    if not tried:
        return
    ordered = sorted(tried, key=lambda item: item.attempt.number)
    last = confirmations[-1] if confirmations else None
    if invocation.machine_readable:
        Outlet(sys.stdout).line(json.dumps(_summary(ordered, last, folder, code)))
        return
    with contextlib.suppress(OSError):
        if len(ordered) > 1:
            print_samples(invocation.console, [item.outcome for item in ordered])
        if last is not None:
            print_winner(invocation.console, last.tried.attempt.number, last.tried.outcome, last.verdict)


def _summary(tried: Sequence[Tried], last: Confirmation | None, folder: Path | None, code: int) -> dict[str, Any]:
    best = max(tried, key=lambda item: item.outcome.rank) if last is None else last.tried
    summary: dict[str, Any] = {
        "type": "summary",
        "runs": [str(item.outcome.folder.path) for item in tried],
        "best_run": str(best.outcome.folder.path),
        "rewards": [item.outcome.reward for item in tried],
        "exit_code": code,
    }
    if folder is not None:
        verdict = last.verdict.model_dump(mode="json") if last and last.verdict else None
        summary |= {
            "search": str(folder),
            "rounds": [item.attempt.round for item in tried],
            "parents": [item.attempt.parent for item in tried],
            "verdict": verdict,
        }
    return summary

"""Several tries at one task: `agent optimize --samples N`; with `--search`, the winner is judged again at the end.

One after the other each try is shown as a single episode is; side by side they share one place, and ^C stops them all.
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
from agent.batch.search import Confirmation, Tried, Try, confirm, run_rounds, search_record, write_record
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
from agent.trajectory.folder import RunFolder, dated_name
from agent.ui.console import print_error
from agent.ui.heading import heading_of
from agent.ui.outcome import result_object
from agent.ui.rows import JsonRows, LiveRows, PlainRows, QuietRows, Rows
from agent.ui.signals import SignalState, handled_signals
from agent.ui.single import Invocation, conclude, print_judge_errors, run_single
from agent.ui.summaries import STOP_WORDS, verdict_words
from agent.ui.tables import print_samples, print_winner
from agent.ui.views import Outlet

POLL_S: Final = 0.2


def run_tries(invocation: Invocation) -> int:
    """Returns the exit code: of the winner's last judgement, else of the best try, 128 + n where signal n ended it."""
    config = invocation.config
    workers = _workers(invocation)
    searching = config.search.kind != "none"
    folder = _search_folder(invocation) if searching else expanded(Path(config.run.output)).absolute()
    player = SideBySide(invocation, folder, workers) if workers > 1 else OneByOne(invocation, folder)
    tried = run_rounds(
        config.search,
        config.run.samples,
        play=player.play,
        leaving=lambda: invocation.controls.leaving or bool(player.errors),
    )
    if not tried and searching:
        with contextlib.suppress(OSError):  # not empty: a try that began and could not be concluded
            folder.rmdir()
    for error in player.errors[1 if not tried else 0 :]:
        print_error(error)
    if not tried and player.errors:
        raise player.errors[0]
    confirmations = _confirmations(invocation, tried, folder) if searching and tried else []
    code = _exit_code(tried, confirmations, player)
    _summarise(invocation, tried, confirmations, folder=folder if searching else None, code=code)
    return code


class OneByOne:
    """One try after the other, each shown as if it were the only one."""

    def __init__(self, invocation: Invocation, folder: Path) -> None:
        self._invocation = invocation
        self._folder = folder
        self.errors: list[AgentError] = []
        self.quit_code: int | None = None

    def play(self, tries: Sequence[Try]) -> list[Tried]:
        done: list[Tried] = []
        for attempt in tries:
            run = RunFolder.create(self._folder, self._invocation.task, self._invocation.config)
            try:
                code, outcome = run_single(self._invocation, run, seed=attempt.seed, tag=str(run.path))
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
    folder: Path
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
                    self.invocation.config, self.invocation.task, RunFolder(self.folder), self.invocation.backend
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
        run = RunFolder.create(self.folder, invocation.task, invocation.config)
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


def _search_folder(invocation: Invocation) -> Path:
    """A new folder below the runs folder, for the runs of this search and its record."""
    output = expanded(Path(invocation.config.run.output)).absolute()
    folder = output / dated_name(invocation.task.name, kind="-search")
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"cannot write in the runs folder {output}: {reason}", hint="choose another one with -o"
        ) from error
    return folder


def _rows(invocation: Invocation) -> Rows:
    style = invocation.request.style
    if style == "json":
        return JsonRows()
    if style == "quiet":
        return QuietRows()
    if style == "auto" and invocation.console.is_terminal and not invocation.console.is_dumb_terminal:
        return LiveRows(invocation.console)
    return PlainRows()


def _confirmations(invocation: Invocation, tried: Sequence[Tried], folder: Path) -> list[Confirmation]:
    """The winner judged again alone, unless a person wants to leave; the record is written either way."""
    controls = invocation.controls
    found: list[Confirmation] = []
    _write(folder, search_record(invocation.config, invocation.task, tried, found))
    if not controls.leaving:
        rows = _rows(invocation)
        rows.say("judging the winner again, alone")
        with (
            handled_signals(controls, interactive=False, say=rows.say_now),
            contextlib.suppress(Interrupted),
        ):
            found = confirm(invocation.config, invocation.task, tried, folder=folder, leave=lambda: controls.leaving)
        _write(folder, search_record(invocation.config, invocation.task, tried, found))
    for confirmation in found:
        if confirmation.error:
            print_error(JudgeError(f"the winner could not be judged again: {confirmation.error}"))
    return found


def _write(folder: Path, record: dict[str, Any]) -> None:
    try:
        write_record(folder, record)
    except RecordError as failure:  # a full disk takes the record, not the runs
        print_error(failure)


def _exit_code(tried: Sequence[Tried], confirmations: Sequence[Confirmation], player: OneByOne | SideBySide) -> int:
    if player.quit_code is not None:
        return player.quit_code
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

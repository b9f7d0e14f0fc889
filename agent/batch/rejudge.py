"""`agent rejudge`: stored submissions judged again by the present judge, and a list of what changed."""

import contextlib
import json
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from types import FrameType
from typing import Any, Final

from agent.batch.collection import PLAN, Collection
from agent.batch.rejudgement import Rejudged, Request, rejudge_run
from agent.batch.summary import refresh_summary
from agent.config import load_config
from agent.errors import EXIT_INFRASTRUCTURE, AgentError, ConfigError, RecordError
from agent.judging.reports import Speedup
from agent.judging.target import resolve_target
from agent.judging.version import judge_version
from agent.loop.waiting import Interrupted
from agent.trajectory.stored import DEEPEST, find_runs
from agent.ui.console import make_console, one_line, print_error
from agent.ui.preflight import check_sandbox, check_target
from agent.ui.quantities import show_speedup
from agent.ui.tables import print_columns
from agent.view.verdicts import Judged, Record

EXIT_SAME: Final = 0
EXIT_CHANGED: Final = 1
EXIT_INTERRUPTED: Final = 130
STATUSES: Final = ("changed", "same", "planned", "skipped", "trouble")


def run_rejudge(
    paths: Sequence[Path],
    *,
    flags: Mapping[str, Any],
    settings: Sequence[str] = (),
    only_accepted: bool = False,
    force: bool = False,
    any_timing: bool = False,
    dry_run: bool = False,
    workers: int = 1,
    as_json: bool = False,
) -> int:
    """0 nothing changed, 1 some verdict did, 3 some run could not be judged, 130 stopped by a person.

    Each run is done or not: whatever ends this call, the same call goes on with what is left. Raises ConfigError.
    """
    folders = list(find_runs(paths))
    if not folders:
        places = ", ".join(map(str, paths))
        raise ConfigError(f"there is no run in {places}", hint="a run has config.json and task.json")
    _check(flags, settings)
    request = Request(
        judge_version(), flags, tuple(settings), only_accepted, force, any_timing, dry_run, side_by_side=workers
    )
    if workers > 1:
        _say(f"{workers} judgements side by side disturb each other's timings; the intervals show by how much")
    results: list[Rejudged] = []
    with _stopping() as stop, ThreadPoolExecutor(workers, thread_name_prefix="rejudge") as pool:
        futures = [pool.submit(rejudge_run, folder, request, leave=stop.is_set) for folder in folders]
        for result in _results(futures, stop):
            results.append(result)
            if not as_json or result.status != "skipped":
                _say(f"[{len(results)}/{len(folders)}] {_line(result)}")
    results.sort(key=lambda result: str(result.run))
    _refresh_summaries(results)
    code = _exit_code(results, stopped=stop.is_set())
    if as_json:
        sys.stdout.write(json.dumps(report(results, request, code)) + "\n")
    else:
        print_results(results, total=len(folders))
    return code


def _refresh_summaries(results: Sequence[Rejudged]) -> None:
    """Those of the collections whose verdicts are others now."""
    judged = [result.run for result in results if result.new is not None]
    for path in sorted({path for run in judged if (path := _collection_of(run))}):
        try:
            refresh_summary(Collection.at(path))
        except AgentError as error:
            print_error(RecordError(f"the summary of {path} is as it was: {error.message}", hint=error.hint))


def _collection_of(run: Path) -> Path | None:
    return next((parent for parent in run.parents[:DEEPEST] if (parent / PLAN).is_file()), None)


def _check(flags: Mapping[str, Any], settings: Sequence[str]) -> None:
    """What was asked for makes sense, before each run has to say that it does not."""
    asked = load_config(settings=settings, flags=flags)
    target = resolve_target(asked.judge)
    check_target(target)
    check_sandbox(asked.sandbox, target)


def report(results: Sequence[Rejudged], request: Request, code: int) -> dict[str, Any]:
    """What --json prints: one object."""
    return {
        "type": "rejudge",
        "judge": {"agent_version": request.judge.agent_version, "tools_sha256": request.judge.tools_sha256},
        "counts": _counts(results),
        "runs": [_plain(result) for result in results],
        "exit_code": code,
    }


def print_results(results: Sequence[Rejudged], *, total: int) -> None:
    """A row for every run that changed, whose timing moved, or that could not be judged; then the sums."""
    console = make_console()
    shown = [r for r in results if r.changes or r.status in ("trouble", "planned")]
    if shown:
        head = ("", "task", "reward", "over eager", "over torch.compile", "why", "run")
        print_columns(console, head, [_row(result) for result in shown], right="lllllll")
    counts = ", ".join(f"{count} {name}" for name, count in _counts(results).items() if count)
    left = f", {total - len(results)} left for the next call" if total > len(results) else ""
    console.print(f"{total} runs: {counts or 'none judged'}{left}")


def _results(futures: Sequence[Future[Rejudged]], stop: threading.Event) -> Iterator[Rejudged]:
    for future in as_completed(futures):
        if stop.is_set():
            for waiting in futures:
                waiting.cancel()
        if future.cancelled():
            continue
        try:
            yield future.result()
        except Interrupted:
            continue


@contextlib.contextmanager
def _stopping() -> Iterator[threading.Event]:
    """^C and SIGTERM end the judgements that are running; what was judged until then stays."""
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit_code(results: Sequence[Rejudged], *, stopped: bool) -> int:
    counts = _counts(results)
    if stopped:
        return EXIT_INTERRUPTED
    if counts["trouble"]:
        return EXIT_INFRASTRUCTURE
    return EXIT_CHANGED if counts["changed"] else EXIT_SAME


def _counts(results: Sequence[Rejudged]) -> dict[str, int]:
    counted = Counter(result.status for result in results)
    return {status: counted[status] for status in STATUSES}


def _line(result: Rejudged) -> str:
    words = {"trouble": "not judged, the old verdict stands", "planned": "would be judged"}
    status = words.get(result.status, result.status)
    rewards = f", reward {_reward(result.old)} → {_reward(result.new)}" if result.new else ""
    return one_line(f"{result.task}: {status}{rewards}{': ' if result.detail else ''}{result.detail}", 300)


def _row(result: Rejudged) -> list[str]:
    old, new = _judged(result.old), _judged(result.new)
    return [
        "not judged" if result.status == "trouble" else result.status,
        one_line(result.task, 60),
        f"{_reward(result.old)} → {_reward(result.new)}" if result.new else _reward(result.old),
        _pair(old.eager if old else None, new.eager if new else None, known=new is not None),
        _pair(old.compile if old else None, new.compile if new else None, known=new is not None),
        _why(result, new),
        str(result.run),
    ]


def _pair(old: Speedup | None, new: Speedup | None, *, known: bool) -> str:
    return f"{show_speedup(old)} → {show_speedup(new)}" if known else show_speedup(old)


def _why(result: Rejudged, new: Judged | None) -> str:
    if new and new.reasons:
        return one_line(f"{new.reasons[0].code}: {new.reasons[0].detail}", 100)
    return one_line(result.detail, 200)


def _reward(record: Record | None) -> str:
    return "–" if record is None or record.reward is None else str(record.reward)


def _judged(record: Record | None) -> Judged | None:
    return record.judged if record else None


def _plain(result: Rejudged) -> dict[str, Any]:
    return {
        "run": str(result.run),
        "task": result.task,
        "status": result.status,
        "detail": result.detail,
        "changes": list(result.changes),
        "old": _side(result.old),
        "new": _side(result.new),
    }


def _side(record: Record | None) -> dict[str, Any] | None:
    if record is None:
        return None
    judged = record.judged
    speedups = {"eager": judged.eager, "compile": judged.compile} if judged else {}
    return {
        "reward": record.reward,
        "verdict": judged.verdict if judged else None,
        "counts": record.counts,
        "reasons": [reason.model_dump() for reason in judged.reasons] if judged else [],
        "speedup": {name: speedup.model_dump() for name, speedup in speedups.items() if speedup},
    }


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

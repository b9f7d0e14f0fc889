"""Reads what a sample has come to from its folder: the only truth about a collection, whatever was killed before.

A sample is done when one of its runs has a verdict that stays. Else the run that can be gone on with is owed, and where
there is none a new one is. Reads verdict.json and the last line of each log; a run that attempts.jsonl calls settled is
believed where its verdict.json is unchanged since (time and size), so that ten thousand samples cost a second.
"""

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from agent.batch.collection import Collection, Plan, TaskEntry
from agent.batch.faults import MOST_ATTEMPTS, MOST_LOST_WORKERS, Fault, refused_by, stop_fault
from agent.trajectory.events import RunEnd, StopReason
from agent.trajectory.folder import RunFolder
from agent.trajectory.stored import Ending, read_ending

State = Literal["done", "owed", "new", "failed", "refused"]
Key = tuple[str, int]
TAIL_BYTES: Final = 4096
HIDDEN_RUN: Final = ".new-"
_TOLD: Final = ("run", "reason", "turns", "prompt_tokens", "completion_tokens", "seconds")
_BURNING: Final = frozenset(fault.value for fault in Fault if fault.burns)


@dataclass(frozen=True)
class Result:
    """One settled run, as little as a summary needs. Speed-ups are those of the verdict that counts."""

    run: Path
    reason: StopReason
    reward: int | None
    turns: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = 0.0
    wall_s: float = 0.0
    speedup_eager: float | None = None
    speedup_compile: float | None = None


@dataclass
class History:
    """What attempts.jsonl says about one sample: attempts used up, the last fault, and how each run was left."""

    burned: int = 0
    workers: int = 0
    fault: str = ""
    detail: str = ""
    runs: dict[str, str] = field(default_factory=dict)
    """Run (relative to the collection) -> the fault of its last attempt."""
    settled: Mapping[str, Any] | None = None
    """The line of the attempt that settled it."""


@dataclass(frozen=True)
class Lost:
    """A run that infrastructure ended before its line could be written."""

    run: Path
    end: RunEnd
    fault: Fault


@dataclass(frozen=True)
class Sample:
    """Where a sample stands. `run` is the settled one (done), or the one to go on with (owed)."""

    key: Key
    state: State
    run: Path | None = None
    result: Result | None = None
    burned: int = 0
    fault: str = ""
    detail: str = ""
    lost: tuple[Lost, ...] = ()


def read_histories(collection: Collection) -> dict[Key, History]:
    """attempts.jsonl, folded. Raises RecordError where it is damaged in the middle."""
    histories: dict[Key, History] = {}
    for line in collection.attempts.read():
        key = (str(line.get("task")), int(line.get("sample") or 0))
        apply_attempt(histories.setdefault(key, History()), line)
    return histories


def apply_attempt(history: History, line: Mapping[str, Any]) -> None:
    fault = str(line.get("error") or "")
    history.fault, history.detail = fault, str(line.get("detail") or "")
    history.workers += fault == Fault.WORKER
    if fault in _BURNING or (fault == Fault.WORKER and history.workers > MOST_LOST_WORKERS):
        history.burned += 1
    if run := line.get("run"):
        history.runs[str(run)] = fault
    if line.get("outcome") == "settled":
        history.settled = line


def read_refused(collection: Collection) -> dict[str, str]:
    """Task id -> why it is refused."""
    lines = collection.refusals.read()
    return {str(line["id"]): str(line.get("detail") or "") for line in lines if line.get("id")}


def scan(
    collection: Collection, plan: Plan, *, histories: Mapping[Key, History], forgiven: Mapping[Key, int]
) -> Iterable[Sample]:
    """Every sample of the plan, task by task. `forgiven`: how many of its used-up attempts do not count."""
    for entry in plan.tasks:
        there: set[str] | None = None
        for index in range(plan.samples):
            key = (entry.id, index)
            if (known := _believed(collection, key, histories.get(key))) is not None:
                yield known
                continue
            there = _names(collection.path / entry.folder) if there is None else there
            if str(index) not in there:
                yield _unseen(key, histories.get(key), forgiven.get(key, 0))
                continue
            history = histories.get(key)
            yield read_sample(collection, entry, index, history=history, forgiven=forgiven.get(key, 0))


def read_sample(
    collection: Collection, entry: TaskEntry, index: int, *, history: History | None, forgiven: int = 0
) -> Sample:
    """Where one sample stands by what its folder holds; half-made run folders of a killed driver are removed."""
    folder, history = collection.sample_folder(entry, index), history or History()
    owed: list[Path] = []
    lost: list[Lost] = []
    for name in sorted(_names(folder)):
        path = folder / name
        if name.startswith(HIDDEN_RUN):
            shutil.rmtree(path, ignore_errors=True)
            continue
        if name.startswith(".") or not path.is_dir():
            continue
        ending, end = read_ending(RunFolder(path)), read_end(path / "events.jsonl")
        if refusal := refused_by(ending):
            return Sample((entry.id, index), "refused", path, detail=refusal)
        if ending is not None and ending.settled and end is not None:
            return Sample((entry.id, index), "done", path, _result(path, ending, end))
        known = history.runs.get(os.path.relpath(path, collection.path))
        if known in (Fault.RECORD, Fault.INTERNAL):
            continue
        if end is None or not _ended_by_infrastructure(end, ending):
            owed.append(path)
        elif known is None:
            lost.append(Lost(path, end, stop_fault(end.reason) if end.reason.infrastructure else Fault.JUDGE))
    burned = history.burned + sum(run.fault.burns for run in lost) - forgiven
    state: State = "failed" if burned >= MOST_ATTEMPTS else "owed" if owed else "new"
    last = (lost[-1].fault.value, "") if lost else (history.fault, history.detail)
    run = owed[-1] if owed else None
    return Sample((entry.id, index), state, run, burned=burned, fault=last[0], detail=last[1], lost=tuple(lost))


def stamp(run: Path) -> str:
    """Changes whenever verdict.json is replaced; empty where there is none."""
    try:
        about = (run / "verdict.json").stat()
    except (OSError, ValueError):  # ValueError: no file can have such a name
        return ""
    return f"{about.st_mtime_ns}:{about.st_size}"


def _believed(collection: Collection, key: Key, history: History | None) -> Sample | None:
    """The settled sample that attempts.jsonl knows, if its verdict is the one that was there then."""
    line = history.settled if history else None
    if line is None or not line.get("stamp") or None in (line.get(name) for name in _TOLD):
        return None
    run = collection.path / str(line["run"])
    if stamp(run) != line["stamp"]:
        return None
    result = Result(
        run=run,
        reason=StopReason(line["reason"]),
        reward=line.get("reward"),
        turns=line["turns"],
        prompt_tokens=line["prompt_tokens"],
        completion_tokens=line["completion_tokens"],
        cost_usd=line.get("cost_usd"),
        wall_s=line["seconds"],
        speedup_eager=line.get("speedup_eager"),
        speedup_compile=line.get("speedup_compile"),
    )
    return Sample(key, "done", run, result)


def _unseen(key: Key, history: History | None, forgiven: int) -> Sample:
    """Nothing of it is on disk; attempts may have been used up all the same."""
    if history is None:
        return Sample(key, "new")
    burned = history.burned - forgiven
    state: State = "failed" if burned >= MOST_ATTEMPTS else "new"
    return Sample(key, state, burned=burned, fault=history.fault, detail=history.detail)


def read_end(events: Path) -> RunEnd | None:
    """The last event of a log where it is the run's end; None for an unfinished, torn or missing log."""
    try:
        with events.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            tail = file.read()
    except OSError:
        return None
    lines = tail.rsplit(b"\n", 2)
    if len(lines) < 2 or lines[-1]:
        return None
    try:
        return RunEnd.model_validate(json.loads(lines[-2]))
    except (ValueError, RecursionError):  # ValueError: pydantic's too
        return None


def _ended_by_infrastructure(end: RunEnd, ending: Ending | None) -> bool:
    """Over without a verdict that stays: by trouble around it, or because the judge stumbled."""
    stumbled = ending is not None and not ending.settled
    return end.reward is None and (end.reason.infrastructure or stumbled)


def _result(run: Path, ending: Ending, end: RunEnd) -> Result:
    eager, compiled = speedups(ending)
    return Result(
        run=run,
        reason=ending.reason,
        reward=ending.reward,
        turns=end.turns,
        prompt_tokens=end.prompt_tokens,
        completion_tokens=end.completion_tokens,
        cost_usd=end.cost_usd,
        wall_s=end.wall_s,
        speedup_eager=eager,
        speedup_compile=compiled,
    )


def speedups(ending: Ending | None) -> tuple[float | None, float | None]:
    """Over eager and over torch.compile, of the verdict that counts."""
    found = (ending.verdict if ending and ending.verdict else {}).get("speedup") or {}
    return (found.get("eager") or {}).get("ratio"), (found.get("compile") or {}).get("ratio")


def _names(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries}
    except OSError:
        return set()

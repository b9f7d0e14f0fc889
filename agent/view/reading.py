"""Reads one stored run for showing: whatever is there, and a note for whatever is not or cannot be read.

A damaged line, a field that another version wrote, a missing file: each is a note on the page, never the end of it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from agent.trajectory.events import EVENT_ADAPTER, Event
from agent.trajectory.folder import RunFolder
from agent.view.verdicts import Record, read_record

NOTES_AT_MOST: Final = 12
TEXT_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class StoredRun:
    """One run as it lies on disk; `notes` says what is missing or damaged, in words for a person."""

    folder: RunFolder
    task: str
    task_text: str
    task_sha256: str
    config: dict[str, Any]
    events: tuple[Event, ...]
    record: Record | None
    earlier: tuple[tuple[str, Record], ...]
    """Verdicts that were replaced, by file name, in the order of these."""
    notes: tuple[str, ...]


def read_run(folder: RunFolder) -> StoredRun:
    """Never raises for what the files hold."""
    notes: list[str] = []
    task = _object(folder.path / "task.json", notes)
    events = tuple(_events(folder.events, notes))
    return StoredRun(
        folder=folder,
        task=str(task.get("id") or folder.run_id),
        task_text=str(task.get("text") or ""),
        task_sha256=str(task.get("sha256") or ""),
        config=_object(folder.path / "config.json", notes),
        events=events,
        record=_record(folder.path / "verdict.json", notes),
        earlier=tuple(_earlier(folder.path / "verdicts", notes)),
        notes=tuple(notes[:NOTES_AT_MOST])
        + ((f"and {len(notes) - NOTES_AT_MOST} more",) * (len(notes) > NOTES_AT_MOST)),
    )


def _object(path: Path, notes: list[str]) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        notes.append(f"{path.name}: {error.strerror or error}")
        return {}
    except (ValueError, RecursionError) as error:
        notes.append(f"{path.name} is damaged: {error}")
        return {}
    if not isinstance(data, dict):
        notes.append(f"{path.name} is damaged: it holds no object")
        return {}
    return data


def _record(path: Path, notes: list[str]) -> Record | None:
    try:
        return read_record(path)
    except ValueError as error:
        notes.append(str(error))
        return None


def _earlier(folder: Path, notes: list[str]) -> Iterator[tuple[str, Record]]:
    if not folder.is_dir():
        return
    for path in sorted(folder.glob("[!.]*.json"), key=lambda p: (p.stem != "original", p.name)):
        if record := _record(path, notes):
            yield path.name, record


def _events(path: Path, notes: list[str]) -> Iterator[Event]:
    try:
        file = path.open("rb")
    except OSError as error:
        notes.append(f"{path.name}: {error.strerror or error}")
        return
    with file:
        for number, raw in enumerate(file, 1):
            if not raw.endswith(b"\n"):
                notes.append(f"{path.name}: the last line is torn")
                return
            event = _event(raw, f"{path.name}: line {number}", notes)
            if event is not None:
                yield event


def _event(raw: bytes, where: str, notes: list[str]) -> Event | None:
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        notes.append(f"{where} is damaged: {error}")
        return None
    try:
        return EVENT_ADAPTER.validate_python(data)
    except ValidationError as error:
        return _foreign(data, error, where, notes)


def _foreign(data: Any, error: ValidationError, where: str, notes: list[str]) -> Event | None:
    """An event of another version: fields that this one does not know are dropped."""
    for problem in error.errors():
        if problem["type"] == "extra_forbidden":
            _drop(data, problem["loc"][1:])  # the first part names the kind of event
    try:
        event = EVENT_ADAPTER.validate_python(data)
    except ValidationError as again:
        first = again.errors()[0]
        notes.append(f"{where} cannot be read: {'.'.join(map(str, first['loc']))}: {first['msg']}")
        return None
    notes.append(f"{where} has fields of another version, which are left out")
    return event


def _drop(data: Any, loc: tuple[int | str, ...]) -> None:
    for part in loc[:-1]:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return
    if isinstance(data, dict):
        data.pop(loc[-1], None)

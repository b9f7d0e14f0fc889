"""Reads events.jsonl one event at a time; a torn last line is work still owed and is dropped."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from agent.errors import RecordError
from agent.trajectory.events import EVENT_ADAPTER, Event


@dataclass(frozen=True)
class Line:
    """One complete line: its event and the offset in bytes right behind it."""

    event: Event
    end: int


def read_events(path: Path) -> Iterator[Event]:
    """All complete events in order, holding one in memory. A missing file has none.

    Raises RecordError for a line in the middle that is no event, and for a gap in `seq`.
    """
    for line in read_lines(path):
        yield line.event


def read_lines(path: Path) -> Iterator[Line]:
    """As read_events, with the offset behind each line."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        end, expected, broken = 0, 0, ""
        for raw in file:
            if broken:
                raise RecordError(f"{path}: {broken}")
            try:
                event = parse_line(raw)
            except ValueError as error:
                broken = f"line {expected + 1} is damaged: {error}"
                continue
            if event.seq != expected:
                raise RecordError(f"{path}: line {expected + 1} has seq {event.seq} instead of {expected}")
            end, expected = end + len(raw), expected + 1
            yield Line(event, end)


def parse_line(raw: bytes) -> Event:
    """ValueError for a torn or damaged line.

    pydantic's own parser is twice as fast and refuses lone surrogates, which JSON can escape and which must survive:
    what it refuses is parsed by `json`.
    """
    if not raw.endswith(b"\n"):
        raise ValueError("no newline at the end")
    try:
        return EVENT_ADAPTER.validate_json(raw)
    except ValidationError:
        pass
    try:
        return EVENT_ADAPTER.validate_python(json.loads(raw))
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None

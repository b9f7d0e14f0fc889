"""Follows what a run records from outside the process that runs it, by reading its log on the shared folder."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agent.loop.control import Phase, Status
from agent.trajectory.events import ActionEvent, Event, ObservationEvent, ReplyEvent, RunStart, StopEvent
from agent.trajectory.folder import RunFolder
from agent.trajectory.reader import parse_line
from agent.trajectory.stored import find_runs


@dataclass
class RunTail:
    """The events that are added to a sample's run from now on.

    `run` is the run that is gone on with; None for one that is still to be made: the first that is not in `known`.
    """

    folder: Path
    run: Path | None
    known: frozenset[str]
    turn: int = field(default=0, init=False)
    """Of the last event that was read."""
    _offset: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.run is not None:
            self._offset = _complete_size(RunFolder(self.run).events)

    def read(self) -> Iterator[tuple[Path, Event]]:
        """What was added since the last call, complete lines only; nothing where it cannot be read now."""
        self.run = self.run or self._begun()
        if self.run is None:
            return
        for line in self._new_lines(RunFolder(self.run).events):
            try:
                event = parse_line(line)
            except ValueError:
                return
            self._offset += len(line)
            self.turn = getattr(event, "turn", self.turn)
            yield self.run, event

    def _begun(self) -> Path | None:
        if not self.folder.is_dir():
            return None
        return next((run.path for run in find_runs([self.folder]) if run.path.name not in self.known), None)

    def _new_lines(self, path: Path) -> list[bytes]:
        try:
            with path.open("rb") as file:
                file.seek(self._offset)
                return file.read().splitlines(keepends=True)
        except OSError:
            return []


def status_of(event: Event, *, turn: int) -> Status | None:
    """What the episode does after this event in this turn, as far as its log tells; None where that is not clear."""
    phase: Phase
    match event:
        case RunStart() | ObservationEvent():
            phase, detail = "thinking", ""
        case ReplyEvent():
            phase, detail = "acting", ""
        case ActionEvent():
            phase, detail = "acting", event.name
        case StopEvent():
            phase, detail = "judging", event.reason.value
        case _:
            return None
    return Status(phase, detail, turn, event.t)


def _complete_size(path: Path) -> int:
    """Bytes up to the last newline: a torn tail is cut off when the run is gone on with."""
    try:
        return path.read_bytes().rfind(b"\n") + 1
    except OSError:
        return 0

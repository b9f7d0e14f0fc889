"""`agent show`: replays a run's log in the terminal; works on an unfinished or torn run, and into a pipe."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.config import expanded
from agent.errors import ConfigError
from agent.trajectory.events import Event, ReplyEvent
from agent.trajectory.folder import RunFolder
from agent.trajectory.reader import read_events
from agent.trajectory.writer import encode_line
from agent.ui.console import make_console
from agent.ui.outcome import outcome_of
from agent.ui.replay import Replayer
from agent.ui.tables import print_outcome

if TYPE_CHECKING:
    from rich.console import Console

_WITHOUT_TURN: Final = ("resumed", "stop", "verdict", "run_end")


@dataclass(frozen=True)
class Turns:
    """A closed range of turns; `last` None means until the end."""

    first: int
    last: int | None

    def holds(self, turn: int) -> bool:
        return self.first <= turn and (self.last is None or turn <= self.last)


def run_show(path: Path, *, turns: str | None, full: bool, diff: bool, json: bool) -> int:
    """Print the run, or the selected turns of it. Returns 0; raises ConfigError for what is no run or no range."""
    chosen = parse_turns(turns)
    folder = find_run(path)
    events = read_events(folder.events)
    if json:
        for event in selected(events, chosen):
            sys.stdout.write(encode_line(event).decode("ascii"))
        return 0
    console = make_console()
    replayer = Replayer(console, folder.path, full=full, diff=diff)
    if chosen is not None:
        if not replayer.show_all(selected(events, chosen)):
            raise ConfigError(f"the run has no turn {turns}", hint=f"agent show {path} shows all of them")
        return 0
    _whole_run(console, folder, replayer, events)
    return 0


def selected(events: Iterator[Event], turns: Turns | None) -> Iterator[Event]:
    """All events, or those of a range of turns; what has no turn of its own belongs to the turn it follows."""
    current = 0
    for event in events:
        if isinstance(event, ReplyEvent):
            current = event.turn
        own = 0 if event.type in _WITHOUT_TURN else getattr(event, "turn", current)
        if turns is None or (own and turns.holds(own)):
            yield event


def parse_turns(text: str | None) -> Turns | None:
    """`7`, `3-9`, `12-`. Raises ConfigError."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+)\s*(-\s*(\d*)\s*)?", text)
    if not match:
        raise ConfigError(f"--turn {text!r} is neither a turn nor a range", hint="write 7, 3-9 or 12-")
    first = int(match[1])
    last = first if match[2] is None else int(match[3]) if match[3] else None
    if last is not None and last < first:
        raise ConfigError(f"--turn {text!r} ends before it begins")
    return Turns(first, last)


def find_run(path: Path) -> RunFolder:
    """The run at `path`; for a folder of runs the one that was written to last. Raises ConfigError."""
    path = expanded(path)
    if path.name == "events.jsonl":
        path = path.parent
    if not path.exists():
        raise ConfigError(f"there is no {path}", hint="give a run folder, for instance the newest below runs/")
    if (path / "config.json").is_file() or not path.is_dir():
        return RunFolder.open(path)
    # A search has its runs in a folder of its own.
    logs = (*path.glob("*/events.jsonl"), *path.glob("*/*/events.jsonl"))
    runs = [p.parent for p in logs if (p.parent / "config.json").is_file()]
    if not runs:
        raise ConfigError(f"{path} is neither a run nor a folder of runs", hint="a run folder has an events.jsonl")
    return RunFolder.open(max(runs, key=lambda run: (run / "events.jsonl").stat().st_mtime))


def _whole_run(console: "Console", folder: RunFolder, replayer: Replayer, events: Iterator[Event]) -> None:
    replayer.heading(folder.task(), folder.config())

    def shown() -> Iterator[Event]:
        for event in events:
            replayer.show(event)
            yield event

    print_outcome(console, outcome_of(folder, shown()))

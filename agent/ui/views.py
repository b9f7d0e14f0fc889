"""Views of a running episode that need no terminal control: plain lines, JSON events, silence; and what a view is."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TextIO

from agent.loop.control import Status
from agent.trajectory.events import Event
from agent.trajectory.writer import encode_line
from agent.ui.console import safe, silence
from agent.ui.narration import Line, Narrator
from agent.ui.progress import Progress
from agent.ui.quantities import show_duration

# Phases worth a line of their own where nothing spins: they take long and leave no event until they end.
_SLOW_PHASES: Final = ("preparing", "judging")
_MARKS: Final = {"turn": "--", "ok": "ok", "bad": "!!", "warn": "! ", "info": "..", "best": "**"}


@dataclass(frozen=True)
class Heading:
    """What stands above a run: a title, facts, remarks, and warnings that are printed in red."""

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    turn_limit: int = 0
    time_limit_s: float = 0.0


class View(Protocol):
    """A Listener that can also be told things which are no events. It never fails because its output is gone."""

    def begin(self, heading: Heading, earlier: Progress) -> None:
        """`earlier` is the state that a resumed run goes on from, or an empty one."""
        ...

    def on_event(self, event: Event) -> None: ...

    def on_status(self, status: Status) -> None: ...

    def say(self, text: str) -> None:
        """A remark for the person who watches."""
        ...

    def say_now(self, text: str) -> None:
        """As `say`, from a signal handler: takes no lock and does not touch a buffered stream."""
        ...

    def result(self, data: dict[str, Any]) -> None:
        """The outcome for programs; views for people leave it to the final table."""
        ...

    def suspended(self) -> AbstractContextManager[None]:
        """While a prompt is open, nothing else is drawn."""
        ...

    def close(self) -> None: ...


@dataclass
class Outlet:
    """A text stream that goes quiet when nobody reads it any more: a closed pipe must not end a run."""

    stream: TextIO
    broken: bool = False

    def line(self, text: str) -> None:
        if self.broken:
            return
        with self.guarded():
            self.stream.write(text + "\n")
            self.stream.flush()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError):
            self.broken = True
            silence(self.stream)


def write_now(text: str) -> None:
    """One line straight to descriptor 2: a signal handler may have interrupted a buffered write."""
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode("ascii", "replace"))


class QuietView:
    """Says nothing until the final table."""

    def begin(self, heading: Heading, earlier: Progress) -> None: ...
    def on_event(self, event: Event) -> None: ...
    def on_status(self, status: Status) -> None: ...
    def say(self, text: str) -> None: ...
    def say_now(self, text: str) -> None:
        write_now(text)

    def result(self, data: dict[str, Any]) -> None: ...
    def close(self) -> None: ...
    def suspended(self) -> AbstractContextManager[None]:
        return nullcontext()


class JsonView(QuietView):
    """One event per line on stdout, then one object of type `result`.

    An event is exactly as recorded; where there are several runs, `tag` (the run's path) stands in front as `run`.
    """

    def __init__(self, stream: TextIO | None = None, *, tag: str = "") -> None:
        self._out = Outlet(stream or sys.stdout)
        self._tag = tag

    def on_event(self, event: Event) -> None:
        self._out.line(tagged(event, self._tag))

    def result(self, data: dict[str, Any]) -> None:
        self._out.line(json.dumps(data, ensure_ascii=True))


@dataclass
class PlainView:
    """One short line per thing that happened, with the run's clock in front."""

    stream: TextIO = field(default_factory=lambda: sys.stdout)
    show_diff: bool = False

    def __post_init__(self) -> None:
        self._out = Outlet(self.stream)
        self._narrator = Narrator()
        self._began_at = time.time()
        self._phase = ""

    def begin(self, heading: Heading, earlier: Progress) -> None:
        self._began_at = time.time() - earlier.elapsed_s
        self._out.line(safe(heading.title))
        for name, value in heading.facts:
            self._out.line(f"  {name:<9} {safe(value)}")
        for remark in heading.remarks:
            self._out.line(f"  note: {safe(remark)}")
        for warning in heading.warnings:
            self._out.line(f"  WARNING: {safe(warning)}")

    def on_event(self, event: Event) -> None:
        for line in self._narrator.lines(event):
            self._out.line(f"{self._clock()} {plain_line(line)}")
        if self.show_diff and (diff := getattr(event, "diff", None)):
            self._out.line(safe(str(diff).rstrip("\n")))

    def on_status(self, status: Status) -> None:
        phase = f"{status.phase}: {safe(status.detail)}"
        if phase != self._phase and status.phase in _SLOW_PHASES:
            self._out.line(f"{self._clock()} ..  {phase}")
        self._phase = phase

    def say(self, text: str) -> None:
        self._out.line(f"{self._clock()} ..  {safe(text)}")

    def say_now(self, text: str) -> None:
        write_now(text)

    def result(self, data: dict[str, Any]) -> None: ...

    def suspended(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None: ...

    def _clock(self) -> str:
        minutes, seconds = divmod(int(time.time() - self._began_at), 60)
        return f"[{minutes:02}:{seconds:02}]"


def tagged(event: Event, run: str) -> str:
    """The event's line of the log, with `run` as its first key where that is not empty."""
    line = encode_line(event).decode("ascii").rstrip("\n")
    return f'{{"run":{json.dumps(run)},{line[1:]}' if run else line


def plain_line(line: Line) -> str:
    """`ok  compile  built 2 sources  (8.2 s)`."""
    parts = [f"{_MARKS[line.tone]:<3} {line.head}"]
    if line.text:
        parts.append(line.text)
    if line.tail:
        parts.append(f"[{line.tail}]" if line.text else line.tail)
    if line.took_s is not None:
        parts.append(f"({show_duration(line.took_s)})")
    return "  ".join(parts)

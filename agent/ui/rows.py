"""Several episodes at once in one place: a row each in a terminal, marked lines elsewhere, JSON events with their run.

Events come from the episodes' threads; each view takes them under one lock and never fails because its output is gone.
"""

import json
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from agent.loop.control import Status
from agent.trajectory.events import Event
from agent.ui.console import one_line, safe
from agent.ui.narration import Narrator
from agent.ui.progress import Progress
from agent.ui.quantities import show_cost, show_count, show_duration, show_ratio
from agent.ui.views import Heading, Outlet, plain_line, tagged, write_now

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

REFRESH_HZ: Final = 4
HEAD_LINES: Final = 4
# Phases that take long and leave no event until they end.
_SLOW_PHASES: Final = ("preparing", "judging")


@dataclass
class Row:
    """One running episode; `name` is short: the number of the try."""

    name: str
    run: Path
    began_at: float = field(default_factory=time.time)
    progress: Progress = field(default_factory=Progress)
    narrator: Narrator = field(default_factory=Narrator)
    status: Status | None = None


class Rows(Protocol):
    """Shows several episodes; `feed` gives the listener of one, `ended` takes its row away."""

    def begin(self, heading: Heading) -> None: ...

    def feed(self, name: str, run: Path) -> "Feed": ...

    def event(self, row: Row, event: Event) -> None: ...

    def status(self, row: Row, status: Status) -> None: ...

    def ended(self, name: str, words: str, *, good: bool) -> None: ...

    def result(self, data: dict[str, Any]) -> None:
        """An object for programs."""
        ...

    def say(self, text: str) -> None: ...

    def say_now(self, text: str) -> None:
        """As `say`, from a signal handler: takes no lock."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Feed:
    """The listener of one episode."""

    rows: Rows
    row: Row

    def on_event(self, event: Event) -> None:
        self.rows.event(self.row, event)

    def on_status(self, status: Status) -> None:
        self.rows.status(self.row, status)


class QuietRows:
    """Keeps the rows up to date and shows nothing."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._rows: dict[str, Row] = {}

    def begin(self, heading: Heading) -> None: ...

    def feed(self, name: str, run: Path) -> Feed:
        with self._lock:
            row = self._rows[name] = Row(name, run)
        return Feed(self, row)

    def event(self, row: Row, event: Event) -> None:
        with self._lock:
            row.progress.add(event)
            self._show(row, event)

    def status(self, row: Row, status: Status) -> None:
        with self._lock:
            self._changed(row, status)
            row.status = status

    def ended(self, name: str, words: str, *, good: bool) -> None:
        with self._lock:
            self._rows.pop(name, None)

    def result(self, data: dict[str, Any]) -> None: ...

    def say(self, text: str) -> None: ...

    def say_now(self, text: str) -> None:
        write_now(text)

    def close(self) -> None: ...

    def _show(self, row: Row, event: Event) -> None:
        """Called with the lock."""

    def _changed(self, row: Row, status: Status) -> None:
        """Called with the lock, before `row` has the new status."""


class JsonRows(QuietRows):
    """Every event with `run` in front, then an object of type `result` per episode."""

    def __init__(self) -> None:
        super().__init__()
        self._out = Outlet(sys.stdout)

    def result(self, data: dict[str, Any]) -> None:
        with self._lock:
            self._out.line(json.dumps(data, ensure_ascii=True))

    def _show(self, row: Row, event: Event) -> None:
        self._out.line(tagged(event, str(row.run)))


class PlainRows(QuietRows):
    """Plain lines as of one episode, with the try's number in front."""

    def __init__(self) -> None:
        super().__init__()
        self._out = Outlet(sys.stdout)
        self._began_at = time.time()

    def begin(self, heading: Heading) -> None:
        for line in _heading_lines(heading):
            self._out.line(line)

    def ended(self, name: str, words: str, *, good: bool) -> None:
        super().ended(name, words, good=good)
        self._line(name, f"{'ok' if good else '!!'}  {safe(words)}")

    def say(self, text: str) -> None:
        self._line("", f"..  {safe(text)}")

    def _show(self, row: Row, event: Event) -> None:
        for line in row.narrator.lines(event):
            self._line(row.name, plain_line(line))

    def _changed(self, row: Row, status: Status) -> None:
        known = row.status and (row.status.phase, row.status.detail)
        if status.phase in _SLOW_PHASES and known != (status.phase, status.detail):
            self._line(row.name, f"..  {status.phase}: {safe(status.detail)}")

    def _line(self, name: str, text: str) -> None:
        minutes, seconds = divmod(int(time.time() - self._began_at), 60)
        mark = f"#{name:<3}" if name else "    "
        with self._lock:
            self._out.line(f"[{minutes:02}:{seconds:02}] {mark} {text}")


class LiveRows(QuietRows):
    """A row per running episode that stays in place; how each ended scrolls above."""

    def __init__(self, console: "Console") -> None:
        from rich.live import Live

        super().__init__()
        self._console = console
        self._out = Outlet(sys.stdout)
        self._notice = ""
        self._began_at = time.time()
        self._live = Live(
            console=console,
            get_renderable=self._picture,
            refresh_per_second=REFRESH_HZ,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def begin(self, heading: Heading) -> None:
        from rich.text import Text

        for number, line in enumerate(_heading_lines(heading)):
            self._print(Text(line, style="bold" if number == 0 else "dim"))
        with self._out.guarded():
            self._live.start()

    def ended(self, name: str, words: str, *, good: bool) -> None:
        from rich.text import Text

        super().ended(name, words, good=good)
        mark, style = ("✓", "green") if good else ("✗", "red")
        self._print(Text.assemble((f"  {mark} try {name}  ", style), safe(words)))

    def say(self, text: str) -> None:
        from rich.text import Text

        self._print(Text(f"→ {safe(text)}", style="yellow"))

    def say_now(self, text: str) -> None:
        self._notice = text

    def close(self) -> None:
        with self._out.guarded():
            self._live.stop()

    def _print(self, what: "RenderableType") -> None:
        if not self._out.broken:
            with self._out.guarded():
                self._console.print(what)

    def _picture(self) -> "RenderableType":
        from rich.console import Group
        from rich.text import Text

        with self._lock:
            rows = list(self._rows.values())
        room = max(2, self._console.height - HEAD_LINES)
        lines = [Text(row_line(row), no_wrap=True, overflow="ellipsis") for row in rows[:room]]
        more = [Text(f"  … and {len(rows) - room} more", style="dim")] if len(rows) > room else []
        help = Text(f"  {self._notice or '^C: stop and judge'}", style="yellow" if self._notice else "dim")
        return Group(Text(), *lines, *more, help)


def row_line(row: Row) -> str:
    """`  3  turn 12   1:05  best 1.50×  12.3k tokens  $0.01  acting: compile`."""
    progress, status = row.progress, row.status
    best = f"best {show_ratio(progress.best_speedup)}" if progress.best_speedup else "nothing timed"
    cost = show_cost(progress.cost_usd) if progress.replies else "no cost"
    doing = (
        f"{status.phase}: {one_line(status.detail, 80)}" if status and status.detail else status.phase if status else ""
    )
    took = show_duration(time.time() - row.began_at)
    return (
        f"{row.name:>4}  turn {progress.turn:<3} {took:>7}  {best:<13}  "
        f"{show_count(progress.tokens):>6} tokens  {cost:<8}  {doing}"
    )


def _heading_lines(heading: Heading) -> list[str]:
    return [
        safe(heading.title),
        *(f"  {name:<9} {safe(value)}" for name, value in heading.facts),
        *(f"  note: {safe(remark)}" for remark in heading.remarks),
        *(f"  WARNING: {safe(warning)}" for warning in heading.warnings),
    ]

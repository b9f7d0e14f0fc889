"""The live view for a terminal: what happened scrolls by, a footer shows what goes on, `d` prints the turn's diff."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.spinner import Spinner
from rich.syntax import Syntax
from rich.text import Text

from agent.loop.control import Status
from agent.trajectory.events import Event
from agent.ui.console import one_line, safe
from agent.ui.keys import Keys
from agent.ui.narration import Line, Narrator, Tone
from agent.ui.progress import Progress
from agent.ui.quantities import show_cost, show_count, show_duration, show_ratio
from agent.ui.views import Heading, Outlet

_STYLES: Final[dict[Tone, str]] = {
    "turn": "bold cyan",
    "ok": "green",
    "bad": "red",
    "warn": "yellow",
    "info": "blue",
    "best": "bold magenta",
}
_MARKS: Final[dict[Tone, str]] = {
    "turn": "·",
    "ok": "✓",
    "bad": "✗",
    "warn": "!",
    "info": "→",
    "best": "★",
}
_PHASES: Final = {"thinking": "the model is thinking", "acting": "", "preparing": "preparing", "judging": "judging"}


class LiveView:
    """Draws at 8 Hz in rich's own thread; the episode's thread only appends lines and swaps small values."""

    def __init__(self, console: Console, *, show_diff: bool = False, keys: bool = True) -> None:
        self._console = console
        self._out = Outlet(sys.stdout)
        self._show_diff = show_diff
        self._narrator = Narrator()
        self._progress = Progress()
        self._heading = Heading("")
        self._status: Status | None = None
        self._notice = ""
        self._began_at = time.time()
        self._spinner = Spinner("line" if console.options.ascii_only else "dots", style="cyan")
        self._live: Live | None = None
        self._keys = Keys(sys.stdin.fileno(), {"d": self.print_diff}) if keys else None

    def begin(self, heading: Heading, earlier: Progress) -> None:
        self._heading, self._progress = heading, earlier
        self._began_at = time.time() - earlier.elapsed_s
        self._print(Text(safe(heading.title), style="bold"))
        for name, value in heading.facts:
            self._fact(name, value, "dim", "")
        for remark in heading.remarks:
            self._fact("note", remark, "yellow", "")
        for warning in heading.warnings:
            self._fact("WARNING", warning, "bold red", "bold red")
        self._resume()

    def on_event(self, event: Event) -> None:
        self._progress.add(event)
        for line in self._narrator.lines(event):
            self._show(line)
        if self._show_diff and (diff := getattr(event, "diff", None)):
            self._print(highlighted(str(diff), "diff"))

    def on_status(self, status: Status) -> None:
        self._status = status

    def say(self, text: str) -> None:
        self._print(Text.assemble(("→ ", "yellow"), (safe(text), "yellow")))

    def say_now(self, text: str) -> None:
        self._notice = text

    def result(self, data: dict[str, Any]) -> None: ...

    @contextmanager
    def suspended(self) -> Iterator[None]:
        self._pause()
        self._notice = ""
        try:
            yield
        finally:
            self._resume()

    def close(self) -> None:
        self._pause()

    def print_diff(self) -> None:
        """The diffs of the latest turn that changed files."""
        turns = self._progress.diffs
        if not turns:
            self.say("no file has been changed yet")
            return
        turn = max(turns)
        for path, diff in turns[turn]:
            self._print(Rule(Text(safe(f"turn {turn} {path}"), style="dim"), style="dim", align="left"))
            self._print(highlighted(diff, "diff"))

    def _fact(self, name: str, value: str, name_style: str, style: str) -> None:
        lines = Text(safe(value), style=style).wrap(self._console, max(20, self._console.width - 12))
        for number, line in enumerate(lines):
            self._print(Text.assemble((f"  {name if number == 0 else '':<9} ", name_style), line))

    def _resume(self) -> None:
        if self._live is None and not self._out.broken:
            self._live = Live(
                console=self._console,
                get_renderable=self._footer,
                refresh_per_second=8,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            with self._out.guarded():
                self._live.start()
            if self._keys:
                self._keys.start()

    def _pause(self) -> None:
        if self._keys:
            self._keys.stop()
        if self._live is not None:
            with self._out.guarded():
                self._live.stop()
            self._live = None

    def _print(self, what: RenderableType) -> None:
        if not self._out.broken:
            with self._out.guarded():
                self._console.print(what)

    def _show(self, line: Line) -> None:
        style, width = _STYLES[line.tone], self._console.width
        if line.tone == "turn":
            facts = [line.tail] if line.tail else []
            facts += [show_duration(line.took_s)] if line.took_s is not None else []
            row = Text.assemble((line.head, style), ("  " + ", ".join(facts) if facts else "", "dim"))
            row.append(f"  {line.text}" if line.text else "", style="italic")
            row.truncate(width, overflow="ellipsis")
            self._print(row)
            return
        head = Text.assemble((f"  {_MARKS[line.tone]} ", style), (f"{line.head:<10}", "bold"))
        head.append(f" {show_duration(line.took_s):>6}" if line.took_s is not None else "", style="dim")
        room = max(20, width - head.cell_len - 2)
        # The outcome matters more than the end of a long command.
        body = Text(one_line(line.text, room if not line.tail else max(20, room // 2)))
        body.append("  " if line.text and line.tail else "")
        body.append(line.tail, style=style)
        for number, part in enumerate(body.wrap(self._console, room)):
            part.rstrip()
            self._print(Text.assemble(head if number == 0 else " " * head.cell_len, "  ", part))

    def _footer(self) -> RenderableType:
        now = time.time()
        return Group(Text(), self._activity(now), self._totals(now), self._help())

    def _activity(self, now: float) -> RenderableType:
        status = self._status
        if status is None:
            return self._spun("starting")
        words = _PHASES.get(status.phase, status.phase)
        detail = "" if status.phase == "thinking" else one_line(status.detail, max(20, self._console.width - 40))
        text = f"{words}: {detail}" if words and detail else words or detail
        turn = f"turn {status.turn} " if status.turn else ""
        return self._spun(f"{turn}{text}  {show_duration(now - status.started_at)}")

    def _spun(self, text: str) -> RenderableType:
        self._spinner.update(text=Text(text, no_wrap=True, overflow="ellipsis"))
        return self._spinner

    def _totals(self, now: float) -> Text:
        progress, heading = self._progress, self._heading
        limit = f" of {show_duration(heading.time_limit_s)}" if heading.time_limit_s else ""
        turns = f"turn {progress.turn}" + (f" of {heading.turn_limit}" if heading.turn_limit else "")
        verified = "verified, not yet timed" if progress.best_turn else "nothing verified yet"
        best = f"best {show_ratio(progress.best_speedup)}" if progress.best_speedup else verified
        cost = show_cost(progress.cost_usd) if progress.replies else "no cost yet"
        parts = [
            turns,
            show_duration(now - self._began_at) + limit,
            f"{show_count(progress.tokens)} tokens",
            cost,
            best,
        ]
        dot = " · "
        return Text("  " + dot.join(parts), style="dim", no_wrap=True, overflow="ellipsis")

    def _help(self) -> Text:
        if self._notice:
            return Text(f"  {self._notice}", style="yellow", no_wrap=True, overflow="ellipsis")
        keys = "d: diff of the turn   ^C: pause" if self._keys else "^C: pause"
        return Text(f"  {keys}", style="dim", no_wrap=True, overflow="ellipsis")


def highlighted(code: str, lexer: str) -> Text:
    """Code or a diff in colour, made safe to print; without padding."""
    text = Syntax("", lexer, theme="ansi_dark", background_color="default").highlight(safe(code.rstrip("\n")))
    text.rstrip()
    return text

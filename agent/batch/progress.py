"""Shows a running collection: a live table in a terminal, else a plain line a minute, or one JSON line per attempt."""

import contextlib
import json
import sys
import time
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from agent.batch.board import Board, View
from agent.ui.console import make_console, one_line, safe
from agent.ui.quantities import show_cost, show_count, show_duration
from agent.ui.views import Outlet

if TYPE_CHECKING:
    from rich.console import Console, Group

REFRESH_S: Final = 0.25
PLAIN_S: Final = 60.0
BAR_CHARS: Final = 24
HEAD_LINES: Final = 7


def make_view(*, plain: bool, as_json: bool) -> View:
    console = make_console(stderr=as_json)
    if as_json:
        return JsonView()
    if plain or not console.is_terminal or console.is_dumb_terminal:
        return PlainView()
    return LiveView(console)


class PlainView:
    """A line a minute, and one for everything that a person should know at once."""

    def __init__(self, *, every_s: float = PLAIN_S) -> None:
        self._every_s = every_s
        self._out = Outlet(sys.stdout)
        self._shown_at = time.monotonic()

    def update(self, board: Board) -> None:
        now = time.monotonic()
        if now - self._shown_at >= self._every_s:
            self._shown_at = now
            self.say(status_line(board))

    def say(self, line: str) -> None:
        self._out.line(one_line(line, 400))

    def attempt(self, record: dict[str, Any]) -> None:
        if record["error"]:
            self.say(attempt_line(record))

    def close(self) -> None:
        pass


class JsonView:
    """One object per ended attempt on standard output, remarks on standard error."""

    def __init__(self) -> None:
        self._out = Outlet(sys.stdout)

    def update(self, board: Board) -> None:
        pass

    def say(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(one_line(line, 400) + "\n")
            sys.stderr.flush()

    def attempt(self, record: dict[str, Any]) -> None:
        self._out.line(json.dumps({"type": "attempt", **record}))

    def close(self) -> None:
        pass


class LiveView:
    """A table that stays in place, with one row per running episode; what is said scrolls above it.

    A terminal that is closed meanwhile takes the picture, not the job.
    """

    def __init__(self, console: "Console") -> None:
        from rich.live import Live

        self._console = console
        self._out = Outlet(cast(TextIO, console.file))
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._shown_at = 0.0
        with self._out.guarded():
            self._live.start()

    def update(self, board: Board) -> None:
        now = time.monotonic()
        if not self._out.broken and now - self._shown_at >= REFRESH_S:
            self._shown_at = now
            with self._out.guarded():
                self._live.update(picture(board, height=self._console.height), refresh=True)

    def say(self, line: str) -> None:
        from rich.text import Text

        if not self._out.broken:
            with self._out.guarded():
                self._live.console.print(Text(safe(line)))

    def attempt(self, record: dict[str, Any]) -> None:
        if record["error"]:
            self.say(one_line(attempt_line(record), 400))

    def close(self) -> None:
        with self._out.guarded():
            self._live.stop()


def attempt_line(record: dict[str, Any]) -> str:
    """One line about an attempt that gave no verdict."""
    return f"{record['task']} sample {record['sample']}: {record['outcome']}: {record['error']}: {record['detail']}"


def status_line(board: Board) -> str:
    """Everything in one line: `12/48 done, 2 running, 1 failed · …`."""
    parts = [
        f"{board.count('done')}/{board.total} done, {len(board.rows)} running, {_owed(board)} owed",
        f"{board.count('failed')} failed, {board.count('refused')} refused",
        "rewards " + " ".join(f"{name}:{number}" for name, number in board.rewards.items()),
        _spent(board),
        f"{show_duration(board.elapsed_s)}, {_eta(board)}",
    ]
    return " · ".join((*parts, board.trouble) if board.trouble else parts)


def picture(board: Board, *, height: int) -> "Group":
    """Totals, histogram of rewards, and one row per running episode as far as the terminal is high."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    done = board.count("done") + board.count("failed") + board.count("refused")
    filled = BAR_CHARS * done // max(1, board.total)
    bar = "█" * filled + "░" * (BAR_CHARS - filled)
    head = Text(f"{bar} {done}/{board.total}  {board.mode}  {show_duration(board.elapsed_s)}, {_eta(board)}", "bold")
    lines = [head, Text(f"{len(board.rows)} running, {_owed(board)} owed, {board.count('failed')} failed, "
                        f"{board.count('refused')} refused   {_spent(board)}")]  # fmt: skip
    lines.append(Text(_histogram(board)))
    if board.trouble:
        lines.append(Text(one_line(board.trouble), style="yellow"))
    table = Table(box=None, pad_edge=False, show_edge=False, expand=True)
    for name in ("task", "sample", "turn", "phase", "doing", "for"):
        table.add_column(
            name, no_wrap=True, overflow="ellipsis", justify="right" if name in ("turn", "for") else "left"
        )
    rows = list(board.rows.values())
    room = max(3, height - HEAD_LINES)
    now = time.monotonic()
    for row in rows[:room]:
        cells = (row.task, str(row.sample), str(row.turn), row.phase, one_line(row.detail, 60))
        table.add_row(*(Text(safe(cell)) for cell in cells), Text(show_duration(now - row.since)))
    more = [Text(f"… and {len(rows) - room} more", style="dim")] if len(rows) > room else []
    return Group(*lines, table, *more)


def _histogram(board: Board) -> str:
    most = max(1, *board.rewards.values())
    bars = " ▁▂▃▄▅▆▇█"
    return "rewards  " + "   ".join(
        f"{name} {bars[-(-8 * number // most)]} {number}" for name, number in board.rewards.items()
    )


def _owed(board: Board) -> int:
    return board.count("owed") + board.count("new") - len(board.rows)


def _spent(board: Board) -> str:
    spent = board.spending.now
    return f"{show_count(spent.tokens)} tokens, {show_cost(spent.total_cost_usd)}"


def _eta(board: Board) -> str:
    return "no estimate yet" if board.eta_s is None else f"about {show_duration(board.eta_s)} left"

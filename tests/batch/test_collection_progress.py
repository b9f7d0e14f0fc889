"""What is shown of a running collection never ends it."""

import io

from rich.console import Console

from agent.batch.board import Board
from agent.batch.progress import LiveView
from agent.batch.spending import Spending


class ClosedTerminal(io.StringIO):
    """Writes as to a terminal whose window was closed: EIO."""

    closed_now = False

    def write(self, text: str) -> int:
        if self.closed_now:
            raise OSError(5, "Input/output error")
        return super().write(text)


def test_a_terminal_that_was_closed_takes_the_picture_only() -> None:
    terminal = ClosedTerminal()
    view = LiveView(Console(file=terminal, force_terminal=True, width=100, height=20))
    view.update(Board(1, 1, Spending()))
    view.say("one")
    assert "one" in terminal.getvalue()
    terminal.closed_now = True
    view.say("two")
    view.update(Board(1, 1, Spending()))
    view.close()
    assert "two" not in terminal.getvalue()

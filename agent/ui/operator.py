"""The person at the terminal: confirms actions one by one, and decides what becomes of a paused run."""

import select
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from agent.loop.control import Controls, Decision, PauseChoice
from agent.ui.console import safe
from agent.ui.views import View

_SHOWN_LINES: Final = 40
_CONFIRM: Final = "run it? [y]es, [n]o, [a]ll from now on"
_PAUSED: Final = "paused: [c]ontinue, [m]essage to the model, [s]top and judge, [q]uit (resume later)"


class TerminalOperator:
    """Asks with plain lines of input. End of input at a question is the careful answer: not run; stop and judge."""

    def __init__(self, console: Console, view: View, controls: Controls) -> None:
        self._console = console
        self._view = view
        self._controls = controls
        self._run_all = False

    def confirm(self, name: str, arguments: Mapping[str, Any]) -> Decision:
        if self._run_all:
            return Decision(run=True)
        with self._view.suspended(), _interruptible():
            self._show(name, arguments)
            try:
                return self._decide()
            except EOFError:
                return Decision(run=False)
            except KeyboardInterrupt:
                # The action is not run, and what becomes of the run is asked next.
                self._controls.request_pause()
                return Decision(run=False)

    def paused(self) -> PauseChoice:
        with self._view.suspended(), _interruptible():
            try:
                return self._choose()
            except EOFError:
                return PauseChoice("stop")
            except KeyboardInterrupt:
                return PauseChoice("quit")

    def _decide(self) -> Decision:
        while True:
            answer = self._ask(f"{_CONFIRM} > ").lower()
            if answer in ("y", "yes"):
                return Decision(run=True)
            if answer in ("a", "all"):
                self._run_all = True
                return Decision(run=True)
            if answer in ("n", "no"):
                return Decision(run=False, message=self._ask("why (the model is told; Enter for no reason) > "))

    def _choose(self) -> PauseChoice:
        while True:
            answer = self._ask(f"{_PAUSED} > ").lower()
            if answer in ("c", "continue"):
                return PauseChoice("continue")
            if answer in ("s", "stop"):
                return PauseChoice("stop")
            if answer in ("q", "quit"):
                return PauseChoice("quit")
            if answer in ("m", "message") and (text := self._message()):
                return PauseChoice("message", text)

    def _message(self) -> str:
        self._console.print(Text("message to the model; an empty line ends it", style="dim"))
        lines = []
        while line := self._ask("| "):
            lines.append(line)
        return "\n".join(lines)

    def _ask(self, prompt: str) -> str:
        """One line of input. Not input(): a signal between its prompt and its read would wait for the next key."""
        sys.stdout.write(prompt)
        sys.stdout.flush()
        while not select.select([sys.stdin], [], [], 0.2)[0]:
            pass
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.strip()

    def _show(self, name: str, arguments: Mapping[str, Any]) -> None:
        self._console.print(Text(f"the model wants to run {name}", style="bold yellow"))
        for key, value in arguments.items():
            if value is None:
                continue
            text, lexer = safe(str(value)), "bash" if key == "command" else "cpp" if key == "content" else "text"
            if "\n" not in text and key != "command":
                self._console.print(Text(f"  {key}: {text}"))
                continue
            lines = text.splitlines()
            body = "\n".join(lines[:_SHOWN_LINES])
            self._console.print(Text(f"  {key}:", style="dim"))
            self._console.print(
                Syntax(body, lexer, theme="ansi_dark", background_color="default", word_wrap=True, padding=(0, 4))
            )
            if len(lines) > _SHOWN_LINES:
                self._console.print(Text(f"    … {len(lines) - _SHOWN_LINES} more lines", style="dim"))


@contextmanager
def _interruptible() -> Iterator[None]:
    """While a question is open, ^C answers it instead of asking for a pause."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)

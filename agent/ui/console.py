"""Consoles for people, text that is safe to print, and the one way in which errors are shown.

Covered: output of a language model or of a program it ran cannot steer the terminal (escape sequences, carriage
returns, direction overrides are made visible), and no terminal encoding makes printing fail. Not covered: what other
programs do with the files of a run.
"""

import codecs
import contextlib
import io
import os
import re
import sys
import traceback
from typing import TYPE_CHECKING, Final, TextIO

from agent.errors import AgentError

if TYPE_CHECKING:
    from rich.console import Console

# C0 except tab and newline, DEL, C1, and the characters that reorder a line.
_UNSAFE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def safe(text: str) -> str:
    """`text` with every character that could steer a terminal written as an escape."""
    return _UNSAFE.sub(_visible, text.replace("\r\n", "\n"))


def one_line(text: str, width: int = 200) -> str:
    """`text` made safe, on one line, cut to `width` characters."""
    flat = " ".join(safe(text[: width * 8]).split())
    return flat if len(flat) <= width else flat[: max(1, width - 1)] + "…"


def prepare_streams() -> None:
    """Let stdout and stderr write what their encoding cannot carry in simpler characters instead of raising.

    A stream that was closed before the start (`>&-`) becomes /dev/null: otherwise the next file that is opened, for
    instance a run's log, gets its number and what children print.
    """
    _open_closed_descriptors()
    codecs.register_error(_SIMPLER, _simpler)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_SIMPLER)


def _open_closed_descriptors() -> None:
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is taken, which is this one: those below it are open by now.
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w" if number else "r", encoding="utf-8"))  # noqa: PTH123, SIM115


_SIMPLER: Final = "agent-simpler"
_SIMPLE: Final = {
    "✓": "+", "✗": "x", "★": "*", "→": "->", "·": "|", "…": "...", "×": "x", "–": "-", "—": "-", "−": "-",
    "µ": "u", "‘": "'", "’": "'", "“": '"', "”": '"',
}  # fmt: skip


def _simpler(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_SIMPLE.get(char, "?") for char in error.object[error.start : error.end]), error.end


def make_console(*, stderr: bool = False, force_width: int | None = None) -> "Console":
    """A console that honours NO_COLOR, TERM=dumb and non-terminals (rich does), without markup or highlighting."""
    # Not at the top: rich costs 50 ms, which --help and error lines do without.
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            raise  # called while BrokenPipeError is being handled; rich itself would end the process here

    console = Quiet(stderr=stderr, markup=False, highlight=False, emoji=False, width=force_width, soft_wrap=False)
    if console.width < 1:  # COLUMNS=0, as some programs without a terminal set it: nothing at all would be printed
        console.width = 80
    return console


def print_error(error: AgentError, *, debug: bool = False) -> None:
    """`error: …` and `hint: …` on stderr; the traceback only where it was asked for."""
    with contextlib.suppress(OSError, ValueError):
        if debug:
            traceback.print_exception(error, file=sys.stderr)
        sys.stderr.write(f"error: {safe(error.message)}\n")
        if error.hint:
            sys.stderr.write(f"hint: {safe(error.hint)}\n")
        sys.stderr.flush()


def silence(stream: TextIO) -> None:
    """Point a broken output at /dev/null, so that the interpreter's last flush does not complain."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

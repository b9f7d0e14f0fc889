"""Reads a hand-written script of turns (turns.md): front matter, then `## Turn N` sections with action blocks.

Text outside blocks is the turn's reasoning. Every block is checked when the script is read, so that a mistake shows
before a sandbox starts.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.backends.fences import ACTION_NAMES, FENCE, FormatError, arguments, closing_line, scan
from agent.errors import ConfigError

_TURN = re.compile(r"## Turn (\d+)\s*$")
_KEYS: Final = ("author", "target", "task", "note")
_REQUIRED: Final = ("author", "target", "task")
_TARGETS: Final = ("cpu", "cuda")


@dataclass(frozen=True)
class ScriptTurn:
    """What the author says and does in one turn; `actions` are (name, arguments)."""

    text: str
    actions: tuple[tuple[str, dict[str, Any]], ...]


@dataclass(frozen=True)
class Script:
    """A parsed turns.md. `task` is the model.py beside it; `sha256` is over the script's bytes."""

    path: Path
    author: str
    target: str
    task: Path
    note: str
    sha256: str
    turns: tuple[ScriptTurn, ...]


def read_script(path: Path) -> Script:
    """Raises ConfigError that names the line and what is wrong."""
    try:
        data = path.read_bytes()
        lines = data.decode("utf-8").replace("\r\n", "\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the script {path}: {error}") from error
    try:
        head, begin = _front_matter(lines)
        turns = tuple(_turns(lines, begin))
    except FormatError as error:
        raise ConfigError(f"{path}, line {error.line}: {error}") from error
    return Script(
        path=path,
        author=head["author"],
        target=head["target"],
        task=path.parent / head["task"],
        note=head.get("note", ""),
        sha256=hashlib.sha256(data).hexdigest(),
        turns=turns,
    )


def _front_matter(lines: Sequence[str]) -> tuple[dict[str, str], int]:
    if lines[0].strip() != "---":
        raise FormatError("a script begins with a line --- and its front matter", line=1)
    values: dict[str, str] = {}
    for number, line in enumerate(lines[1:], 2):
        if line.strip() == "---":
            _check_front_matter(values, number)
            return values, number
        if not line.strip():
            continue
        key, colon, value = line.partition(":")
        key = key.strip()
        if not colon or key not in _KEYS or key in values:
            raise FormatError(f"front matter holds one line each of {', '.join(_KEYS)}, not {line[:60]!r}", line=number)
        values[key] = value.strip()
    raise FormatError("the front matter has no closing ---", line=1)


def _check_front_matter(values: dict[str, str], line: int) -> None:
    missing = [key for key in _REQUIRED if not values.get(key)]
    if missing:
        raise FormatError(f"the front matter has no {', '.join(missing)}", line=line)
    if values["target"] not in _TARGETS:
        raise FormatError(f"target is {' or '.join(_TARGETS)}, not {values['target']!r}", line=line)


def _turns(lines: Sequence[str], begin: int) -> Iterator[ScriptTurn]:
    """`begin` is the index of the first line behind the front matter."""
    heads = list(_headings(lines, begin))
    if not heads:
        raise FormatError("there is no turn: turns begin with a line `## Turn 1`", line=begin + 1)
    if scan("\n".join(lines[begin : heads[0][0]])).blocks:
        raise FormatError("an action stands before the first turn", line=begin + 1)
    ends = [index for index, _ in heads[1:]] + [len(lines)]
    for expected, ((index, number), end) in enumerate(zip(heads, ends, strict=True), 1):
        if number != expected:
            raise FormatError(f"turn {number} stands where turn {expected} belongs", line=index + 1)
        yield _turn(lines, index, end)


def _headings(lines: Sequence[str], begin: int) -> Iterator[tuple[int, int]]:
    """(index, number) of each turn's heading; those inside blocks are text."""
    at = begin
    while at < len(lines):
        fence = FENCE.match(lines[at])
        if fence:
            end = closing_line(lines, at, len(fence[1]))
            if end == len(lines):
                raise FormatError("this block is never closed", line=at + 1)
            at = end
        elif heading := _TURN.match(lines[at]):
            yield at, int(heading[1])
        elif lines[at].lower().startswith("## turn"):
            raise FormatError(f"a turn's heading is `## Turn N`, not {lines[at][:60]!r}", line=at + 1)
        at += 1


def _turn(lines: Sequence[str], index: int, end: int) -> ScriptTurn:
    found = scan("\n" * (index + 1) + "\n".join(lines[index + 1 : end]))
    if not found.blocks:
        raise FormatError("this turn has no action block", line=index + 1)
    for block in found.blocks:
        if block.name not in ACTION_NAMES:
            names = ", ".join(ACTION_NAMES)
            raise FormatError(f"there is no action {block.name}; the actions are {names}", line=block.line)
    return ScriptTurn(found.prose, tuple((block.name, arguments(block)) for block in found.blocks))

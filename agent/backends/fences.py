"""The fenced-text protocol: finds action blocks in a text, turns them into calls, and writes calls as blocks.

An action is a fenced block whose info string is `action NAME key=value…`; its body is the main argument. A fence of n
backticks is closed by a line of n or more, so a body may hold shorter fences. What cannot be read exactly as meant is
a FormatError with a sentence for the model, never a guess that gets executed.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agent.backends.base import ToolSchema
from agent.backends.sanitize import clean_text, parse_object

BODY_ARGUMENT: Final[Mapping[str, str]] = {"bash": "command", "write_file": "content", "submit": "summary"}
"""The argument that the body carries; a body of write_file ends in a newline, the others do not."""
ACTION_NAMES: Final = (
    "bash",
    "write_file",
    "edit_file",
    "compile",
    "verify",
    "profile",
    "inspect",
    "sanitize",
    "submit",
)

FENCE = re.compile(r" {0,3}(`{3,})[ \t]*([^`]*?)[ \t\r]*$")
_INFO = re.compile(r"action(?:[ \t]*[:=][ \t]*|[ \t]+|$)(.*)", re.IGNORECASE | re.DOTALL)
_ATTRIBUTE = re.compile(r"""\s*([A-Za-z_]\w*)\s*=\s*("(?:[^"\\]|\\.)*"|'[^']*'|[^\s"']\S*|(?=\s|$))(?=\s|$)""")
_EDIT_OLD = re.compile(r"<<<<<<<( .*)?$")
_EDIT_NEW = re.compile(r">>>>>>>( .*)?$")
_EDIT_CUT: Final = "======="


class FormatError(ValueError):
    """What is wrong with a block, in words for the model; `line` counts from 1 in the text."""

    def __init__(self, message: str, *, line: int) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Block:
    """One action block as written: header values are strings, the body is its lines; `line` is the opening fence's."""

    name: str
    attributes: Mapping[str, str]
    lines: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class Scan:
    """A text's action blocks, the prose around them, and the info strings of its other blocks."""

    blocks: tuple[Block, ...] = ()
    prose: str = ""
    other: tuple[str, ...] = field(default=())


def scan(text: str) -> Scan:
    """Raises FormatError for a block that is not closed before the next action, or has an unreadable header.

    An action block that the text's end cuts off counts as closed: models often leave the last fence out.
    """
    lines = text.split("\n")
    blocks: list[Block] = []
    prose: list[str] = []
    other: list[str] = []
    at = 0
    while at < len(lines):
        opening = FENCE.match(lines[at])
        if opening is None:
            prose.append(lines[at])
            at += 1
            continue
        end = closing_line(lines, at, len(opening[1]))
        info = _INFO.match(opening[2])
        if info:
            blocks.append(_block(info[1], lines, at, end, len(opening[1])))
        else:
            _check_other(lines, at, end)
            other.append(opening[2])
            prose.extend(lines[at : end + 1])
        at = end + 1
    return Scan(tuple(blocks), "\n".join(prose).strip(), tuple(other))


def closing_line(lines: Sequence[str], at: int, length: int) -> int:
    """Index of the closing fence; len(lines) where there is none."""
    for index in range(at + 1, len(lines)):
        match = FENCE.match(lines[index])
        if match and len(match[1]) >= length and not match[2]:
            return index
    return len(lines)


def _block(header: str, lines: Sequence[str], at: int, end: int, length: int) -> Block:
    name, attributes = _header(header, at + 1)
    body = lines[at + 1 : end]
    if end == len(lines) and body and not body[-1].strip():
        body = body[:-1]
    for offset, line in enumerate(body):
        inner = FENCE.match(line)
        if inner and inner[2] and len(inner[1]) >= length:
            raise FormatError(
                f"the block opened on line {at + 1} (action {name}) holds a fence that is as long as its own on line "
                f"{at + 2 + offset}; close the block before it, or open the block with more backticks",
                line=at + 1,
            )
    return Block(name, attributes, tuple(body), at + 1)


def _check_other(lines: Sequence[str], at: int, end: int) -> None:
    """An unclosed block swallows the actions behind it: say so instead of losing them."""
    if end < len(lines):
        return
    for index in range(at + 1, end):
        inner = FENCE.match(lines[index])
        if inner and _INFO.match(inner[2]):
            raise FormatError(
                f"the block opened on line {at + 1} is never closed, so the action on line {index + 1} is part of it",
                line=at + 1,
            )


def _header(header: str, line: int) -> tuple[str, dict[str, str]]:
    name, _, rest = header.strip().partition(" ")
    name = name.strip("`:,").lower().replace("-", "_")
    if not re.fullmatch(r"[a-z_]\w*", name):
        raise FormatError(f"the block on line {line} names no action: write `action NAME key=value`", line=line)
    attributes: dict[str, str] = {}
    at = 0
    while rest[at:].strip():
        match = _ATTRIBUTE.match(rest, at)
        if match is None:
            raise FormatError(
                f"cannot read {rest[at:].strip()[:60]!r} in the header of action {name} on line {line}: after the name "
                "only key=value is allowed (quote values with spaces); the main argument goes into the body",
                line=line,
            )
        if match[1] in attributes:
            raise FormatError(f"action {name} on line {line} gives {match[1]} twice", line=line)
        attributes[match[1]] = _unquote(match[2])
        at = match.end()
    return name, attributes


def _unquote(value: str) -> str:
    if value.startswith('"'):
        try:
            return str(json.loads(value))
        except ValueError:
            return value[1:-1]
    return value[1:-1] if value.startswith("'") else value


def arguments(block: Block, schema: ToolSchema | None = None) -> dict[str, Any]:
    """The call's arguments; `schema` gives the types of header values. Raises FormatError.

    A body that is a JSON object gives all arguments of actions that take no body, of an edit_file without markers, and
    of a write_file whose header has no path.
    """
    values = {key: _typed(value, key, schema) for key, value in block.attributes.items()}
    body = "\n".join(block.lines)
    name = BODY_ARGUMENT.get(block.name)
    if block.name == "edit_file" and any(_EDIT_OLD.match(line) for line in block.lines):
        return {**values, **_edit(block)}
    if name is None or (block.name == "write_file" and "path" not in values):
        return {**values, **_json_body(block, body)}
    if name in values and block.lines:
        raise FormatError(
            f"action {block.name} on line {block.line} gives {name} twice: header and body", line=block.line
        )
    if name in values or (block.name == "submit" and not body):
        return values
    return {**values, name: "".join(line + "\n" for line in block.lines) if name == "content" else body}


def _json_body(block: Block, body: str) -> dict[str, Any]:
    if not body.strip():
        return {}
    value = parse_object(body)
    if value is not None:
        return value
    if block.name == "write_file":
        problem = f"action write_file on line {block.line} has no path: write `action write_file path=…`"
    elif block.name == "edit_file":
        problem = (
            f"the body of action edit_file on line {block.line} must be a line <<<<<<< old, the text to replace, "
            "a line =======, the new text, a line >>>>>>> new"
        )
    else:
        problem = f"action {block.name} on line {block.line} takes no body (or a JSON object with its arguments)"
    raise FormatError(problem, line=block.line)


def _edit(block: Block) -> dict[str, str]:
    lines = list(block.lines)
    while lines and not lines[-1].strip():
        lines.pop()
    while lines and not lines[0].strip():
        lines.pop(0)
    cuts = [index for index, line in enumerate(lines) if line.rstrip("\r") == _EDIT_CUT]
    if len(cuts) != 1 or not _EDIT_OLD.match(lines[0]) or not _EDIT_NEW.match(lines[-1].rstrip("\r")):
        raise FormatError(
            f"action edit_file on line {block.line} needs one line <<<<<<< old at the start, one line ======= and one "
            f"line >>>>>>> new at the end; it has {len(cuts)} lines =======. One replacement per block; where the "
            'text itself has such lines, give {"path": …, "old": …, "new": …} as the body',
            line=block.line,
        )
    return {"old": "\n".join(lines[1 : cuts[0]]), "new": "\n".join(lines[cuts[0] + 1 : -1])}


def _typed(value: str, key: str, schema: ToolSchema | None) -> Any:
    """Numbers and booleans where the schema wants them; without a schema, numbers for names with a unit of seconds."""
    if schema is None:
        kinds = {"number"} if key.endswith("_s") else set()
    else:
        kinds = set(_kinds(schema.parameters.get("properties", {}).get(key, {})))
    if kinds & {"number", "integer", "boolean"}:
        try:
            parsed = json.loads(value.lower())
        except ValueError:
            return value
        return parsed if isinstance(parsed, int | float) else value
    return value


def _kinds(schema: Mapping[str, Any]) -> Iterator[str]:
    kind = schema.get("type")
    if isinstance(kind, str):
        yield kind
    elif isinstance(kind, list):
        yield from kind
    for option in schema.get("anyOf", ()):
        yield from _kinds(option)


def render(name: str, values: Mapping[str, Any]) -> str:
    """The block that `scan` and `arguments` read back as exactly these arguments; None counts as not given."""
    values = {key: value for key, value in values.items() if value is not None}
    body_name = BODY_ARGUMENT.get(name, "")
    if name == "edit_file" and set(values) == {"path", "old", "new"} and _editable(values):
        body = ["<<<<<<< old", *_lines(values["old"]), _EDIT_CUT, *_lines(values["new"]), ">>>>>>> new"]
        return _fenced(name, {"path": values["path"]}, body)
    header = {key: value for key, value in values.items() if key != body_name}
    if not all(_plain(key, value) for key, value in header.items()):
        return _fenced(name, {}, [json.dumps(values, ensure_ascii=False)])
    if body_name not in values:
        return _fenced(name, header, [])
    if name == "write_file":
        whole = isinstance(values["content"], str) and "path" in header and values["content"][-1:] in ("", "\n")
        if not whole:
            return _fenced(name, {}, [json.dumps(values, ensure_ascii=False)])
        return _fenced(name, header, values["content"].split("\n")[:-1] if values["content"] else [])
    return _fenced(name, header, _lines(str(values[body_name])))


def _editable(values: Mapping[str, Any]) -> bool:
    if not all(isinstance(value, str) for value in values.values()):
        return False
    lines = [*values["old"].split("\n"), *values["new"].split("\n")]
    return not any(line.rstrip("\r") == _EDIT_CUT for line in lines)


def _lines(text: str) -> list[str]:
    return text.split("\n") if text else []


def _plain(key: str, value: Any) -> bool:
    if isinstance(value, bool) or not re.fullmatch(r"[A-Za-z_]\w*", key, re.ASCII):
        return False
    return isinstance(value, str) or (isinstance(value, int | float) and key.endswith("_s"))


def _fenced(name: str, header: Mapping[str, Any], body: Sequence[str]) -> str:
    runs = [len(run) for run in re.findall("`+", "\n".join(body))]
    fence = "`" * max([3, *(length + 1 for length in runs)])
    attributes = "".join(f" {key}={_quoted(value)}" for key, value in header.items())
    return "\n".join([f"{fence}action {name}{attributes}", *body, fence])


def _quoted(value: Any) -> str:
    text = clean_text(value) if isinstance(value, str) else json.dumps(value)
    if re.fullmatch(r"[\w./+:@%,-]+", text, re.ASCII):
        return text
    return json.dumps(text).replace("`", "\\u0060")

"""Calls in other notations than ours: JSON objects in <tool_call> tags or fenced blocks, as many models learned them.

Covers: {"name": …, "arguments": {…}} of a known action and nothing else in the object, one or several. Does not cover:
notations that are no JSON; a reply with anything that cannot be read exactly has no calls at all.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from agent.backends.base import Reply, ToolCall, ToolSchema
from agent.backends.sanitize import dump_object, parse_object

_PLACES: Final = (
    re.compile(r"<tool_call>\s*(\{.*?\})\s*(?:</tool_call>|\Z)", re.DOTALL),
    re.compile(r"^```(?:json|tool_call|xml)?[ \t]*\n\s*(\{.*?\})\s*\n?```[ \t]*$", re.DOTALL | re.MULTILINE),
    re.compile(r"\A\s*(\{.*\})\s*\Z", re.DOTALL),
)
_KEYS: Final = (frozenset({"name", "arguments"}), frozenset({"name", "parameters"}))


def with_foreign_calls(reply: Reply, tools: Sequence[ToolSchema], *, turn: int) -> Reply | None:
    """The reply with the calls that stand in its text; None where there are none, or one is not certain."""
    names = {tool.name for tool in tools}
    for place in _PLACES:
        found = place.findall(reply.text)
        calls = [_call(text, names) for text in found]
        if not calls or None in calls:
            continue
        read = tuple(
            ToolCall(id=f"text_{turn}_{k}", name=call[0], arguments=call[1])
            for k, call in enumerate(call for call in calls if call is not None)
        )
        raw = {**reply.raw, "calls_read_from": "text"}
        return reply.model_copy(update={"calls": read, "finish_reason": "tool_calls", "raw": raw})
    return None


def _call(text: str, names: set[str]) -> tuple[str, str] | None:
    value = parse_object(text)
    if value is None or frozenset(value) not in _KEYS or value["name"] not in names:
        return None
    arguments: Any = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):
        arguments = parse_object(arguments)
    return (value["name"], dump_object(arguments)) if isinstance(arguments, dict) else None

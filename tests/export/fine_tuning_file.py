"""Checks a chat fine-tuning file as OpenAI's endpoint does: fields, roles, calls, pairing, last message, weights."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOP = {"messages", "tools", "parallel_tool_calls", "functions"}
FIELDS = {
    "system": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "tool_calls", "weight", "name", "refusal"},
    "tool": {"role", "content", "tool_call_id"},
}
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def problems(path: Path) -> list[str]:
    """Everything that is wrong, with its line; nothing for a good file."""
    lines = path.read_bytes().decode("utf-8").split("\n")
    assert lines.pop() == ""
    return [f"line {number}: {what}" for number, line in enumerate(lines, 1) for what in _line(json.loads(line))]


def _line(record: dict[str, Any]) -> Iterator[str]:
    yield from (f"unknown field {name}" for name in set(record) - TOP)
    names = set()
    for tool in record.get("tools", []):
        function = tool.get("function", {})
        names.add(function.get("name"))
        if tool.get("type") != "function" or not NAME.fullmatch(function.get("name", "")):
            yield f"no tool: {tool}"
        if function.get("parameters", {}).get("type") != "object":
            yield f"parameters of {function.get('name')} are no object schema"
    messages = record.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "no messages"
        return
    yield from _conversation(messages, names)
    if messages[-1].get("role") != "assistant":
        yield "the last message is not from the assistant"
    if not any(m["role"] == "assistant" and m.get("weight", 1) == 1 for m in messages):
        yield "nothing to train on"
    several = any(len(message.get("tool_calls") or ()) > 1 for message in messages)
    if several and record.get("parallel_tool_calls") is False:
        yield "several calls in one message, which parallel_tool_calls forbids"


def _conversation(messages: list[dict[str, Any]], tools: set[Any]) -> Iterator[str]:
    waiting: list[str] = []
    for at, message in enumerate(messages):
        role = message.get("role")
        if role not in FIELDS:
            yield f"message {at}: role {role}"
            continue
        yield from (f"message {at}: unknown field {name}" for name in set(message) - FIELDS[role])
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                yield f"message {at}: a result of no call"
            else:
                waiting.remove(message["tool_call_id"])
        elif waiting:
            yield f"message {at}: calls {waiting} have no result"
            waiting = []
        if role == "assistant":
            yield from (f"message {at}: {what}" for what in _assistant(message, tools))
            waiting = [call["id"] for call in message.get("tool_calls", [])]
        elif not isinstance(message.get("content"), str):
            yield f"message {at}: content is no text"


def _assistant(message: dict[str, Any], tools: set[Any]) -> Iterator[str]:
    if message.get("weight", 1) not in (0, 1) or isinstance(message.get("weight"), bool):
        yield "weight is neither 0 nor 1"
    calls = message.get("tool_calls")
    if calls == [] or (calls is None and not isinstance(message.get("content"), str)):
        yield "neither text nor calls"
    ids = [call.get("id") for call in calls or ()]
    if len(set(ids)) < len(ids):
        yield "an id twice"
    for call in calls or ():
        function = call.get("function", {})
        if call.get("type") != "function" or not NAME.fullmatch(function.get("name", "")):
            yield f"no call: {call}"
        if function.get("name") not in tools and message.get("weight", 1):
            yield f"a call of {function.get('name')}, which is no tool"
        if not isinstance(function.get("arguments"), str):
            yield "arguments are no text"
        elif not isinstance(json.loads(function["arguments"]), dict):
            yield "arguments are no object"

"""Makes text and histories safe to send and to store: no lone surrogates, valid argument objects, paired tool results.

Servers parse every historical call again: one malformed argument string, or one call without its result, makes them
answer 400 for the rest of an episode. The raw strings stay in the event log; only what is sent is repaired.
"""

import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from agent.backends.base import Message, ToolCall

NOT_EXECUTED: Final = "action was not executed"
EMPTY: Final = "(empty)"
_DIAGNOSTIC_CHARS: Final = 16_384


def clean_text(text: str) -> str:
    """Joins surrogate pairs and replaces lone surrogates by U+FFFD; other text is returned as it is."""
    try:
        text.encode("utf-8")  # much faster than any search, and histories are long
    except UnicodeEncodeError:
        return _join_surrogates(text)
    return text


def _join_surrogates(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def clean_json(value: Any) -> Any:
    """clean_text on every string, keys included."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(str(key)): clean_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(item) for item in value]
    return value


def parse_object(text: str) -> dict[str, Any] | None:
    """The JSON object in `text`; None for anything else, NaN and Infinity included: strict servers refuse them."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def dump_object(values: dict[str, Any]) -> str:
    """JSON without lone surrogates, other text readable."""
    return json.dumps(clean_json(values), ensure_ascii=False)


@lru_cache(maxsize=1024)  # a history is sent again every turn
def argument_object(raw: str) -> str:
    """`raw` itself where it is a clean JSON object, else its cleaned form, else an object that says what was wrong."""
    value = parse_object(raw)
    if value is None:
        return dump_object({"invalid_arguments": raw[:_DIAGNOSTIC_CHARS]})
    cleaned = clean_json(value)
    if cleaned == value and clean_text(raw) is raw:
        return raw
    return dump_object(cleaned)


def function_name(name: str) -> str:
    """A name that servers accept: letters, digits, _ and -, 1 to 64 of them."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "invalid"


def unique_ids(ids: Iterable[str]) -> list[str]:
    """The same ids; empty and repeated ones get a stable name that no other has."""
    given = list(ids)
    taken = {id for id in given if id}
    result: list[str] = []
    seen: set[str] = set()
    for index, id in enumerate(given):
        name, n = id or f"call_{index}", 2
        while name in seen or (name != id and name in taken):
            name, n = f"{id or 'call'}_{index}_{n}", n + 1
        seen.add(name)
        result.append(name)
    return result


def sanitize_history(messages: Sequence[Message]) -> list[Message]:
    """The same conversation in a form that every server accepts.

    Each assistant message is followed at once by exactly one tool message per call (missing results are supplied,
    results of no call become user messages); argument strings are JSON objects; no lone surrogates; no empty turns.
    """
    result: list[Message] = []
    index = 0
    while index < len(messages):
        message = messages[index]
        end = index + 1
        if message.role == "assistant":
            while end < len(messages) and messages[end].role != "assistant":
                end += 1
            result.extend(_turn(message, messages[index + 1 : end]))
        else:
            result.append(_orphan(message) if message.role == "tool" else _clean(message))
        index = end
    return result


def _turn(assistant: Message, followers: Sequence[Message]) -> list[Message]:
    waiting = [m for m in followers if m.role == "tool"]
    results: list[Message] = []
    ids = unique_ids(clean_text(call.id) for call in assistant.tool_calls)
    calls: list[ToolCall] = []
    for call, id in zip(assistant.tool_calls, ids, strict=True):
        answer = next((m for m in waiting if m.tool_call_id == call.id), None)
        if answer is not None:
            waiting.remove(answer)
        content = clean_text(answer.content) if answer else NOT_EXECUTED
        results.append(Message(role="tool", content=content, tool_call_id=id))
        calls.append(ToolCall(id=id, name=function_name(call.name), arguments=argument_object(call.arguments)))
    content = clean_text(assistant.content) or ("" if calls else EMPTY)
    reasoning = clean_text(assistant.reasoning) if assistant.reasoning else None
    head = Message(role="assistant", content=content, tool_calls=tuple(calls), reasoning=reasoning)
    rest = [_orphan(m) if m.role == "tool" else _clean(m) for m in followers if m.role != "tool" or _among(m, waiting)]
    return [head, *results, *rest]


def _among(message: Message, messages: Sequence[Message]) -> bool:
    return any(message is other for other in messages)


def _clean(message: Message) -> Message:
    return Message(role=message.role, content=clean_text(message.content))


def _orphan(message: Message) -> Message:
    return Message(role="user", content=f"[result of an unknown call]\n{clean_text(message.content)}")

"""Messages and tools in OpenAI's wire form, with what single providers want different about them."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from agent.backends.base import Message, ToolSchema
from agent.backends.sanitize import clean_json

_CACHE_MARK: Final[Mapping[str, Any]] = {"cache_control": {"type": "ephemeral"}}


def wire_message(
    message: Message, *, reasoning: str = "drop", field: str = "reasoning_content", call_ids: str = "any"
) -> dict[str, Any]:
    """One sanitised message. `reasoning` says which replies' reasoning goes back in `field`: drop, with_calls, keep."""
    wire: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_call_id is not None:
        wire["tool_call_id"] = _call_id(message.tool_call_id, call_ids)
    if message.tool_calls:
        wire["content"] = message.content or None
        wire["tool_calls"] = [
            {
                "id": _call_id(call.id, call_ids),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    wanted = reasoning == "keep" or (reasoning == "with_calls" and bool(message.tool_calls))
    if message.reasoning is not None and wanted:
        wire[field] = message.reasoning
    return wire


def _call_id(id: str, form: str) -> str:
    """Mistral takes ids of exactly nine letters and digits; a digest keeps calls and results paired."""
    return hashlib.sha256(id.encode()).hexdigest()[:9] if form == "nine_letters" else id


def wire_tool(tool: ToolSchema) -> dict[str, Any]:
    function: Mapping[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": clean_json(function)}


def mark_for_cache(wire: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same messages with cache marks on the system message and on the last message that has text.

    Everything up to a mark is kept by the provider; the history only grows, so the next turn finds it.
    """
    texts = [at for at, message in enumerate(wire) if message["content"] and message["role"] != "assistant"]
    marked = {at for at in texts if wire[at]["role"] == "system"} | set(texts[-1:])
    return [_marked(message) if at in marked else message for at, message in enumerate(wire)]


def _marked(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "content": [{"type": "text", "text": message["content"], **_CACHE_MARK}]}

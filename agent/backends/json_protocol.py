"""Tool calls as one JSON object per reply, which most servers can hold a model to with response_format.

Covers: servers that constrain to a schema, to any JSON, or not at all; replies with the object in a fence. Does not
cover: text around the object; such a reply has no calls and says why in `Reply.raw["format_error"]`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent.backends.base import Backend, Message, Reply, ToolCall, ToolSchema
from agent.backends.grammar import actions_schema
from agent.backends.sanitize import dump_object, parse_object, sanitize_history
from agent.backends.text_protocol import add_user, system_text, told_result
from agent.backends.wording import render_template
from agent.backends.wrapper import Wrapper, constrain

_FENCED: Final = re.compile(r"\A\s*```(?:json)?[ \t]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_EXAMPLE: Final[Mapping[str, Any]] = {
    "why": "See what is there.",
    "actions": [{"name": "bash", "arguments": {"command": "ls -l kernels"}}],
}


class JsonProtocolBackend(Wrapper):
    """Speaks JSON objects with the model behind `inner`; `form` is how its server is told the schema, if at all."""

    def __init__(self, inner: Backend, *, form: str = "") -> None:
        super().__init__(inner)
        self._form = form

    def describe(self) -> Mapping[str, Any]:
        return {**self.inner.describe(), "tool_protocol": "json"}

    def chat(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> Reply:
        """One turn; calls get ids that are unique in the conversation."""
        turn = sum(message.role == "assistant" for message in messages)
        if tools and (wanted := response_format(tools, self._form)):
            constrain(self.inner, {"response_format": wanted})
        return read_object(self.inner.chat(as_objects(messages, tools), ()), tools, turn=turn)


def response_format(tools: Sequence[ToolSchema], form: str) -> dict[str, Any]:
    """The request field, in the form that the server knows; {} for a server that knows none."""
    match form:
        case "json_schema":
            schema = {"name": "actions", "strict": True, "schema": actions_schema(tools)}
            return {"type": "json_schema", "json_schema": schema}
        case "json_object_schema":
            return {"type": "json_object", "schema": actions_schema(tools)}
        case "json_object":
            return {"type": "json_object"}
        case _:
            return {}


def as_objects(messages: Sequence[Message], tools: Sequence[ToolSchema]) -> list[Message]:
    """The conversation without tool roles: calls as the object that the model writes, results as user turns."""
    described = [{"name": t.name, "description": t.description.strip(), "schema": _signature(t)} for t in tools]
    values = {"system": system_text(messages), "tools": described, "example": dump_object(dict(_EXAMPLE))}
    result = [Message(role="system", content=render_template("json_protocol.j2", **values).strip())]
    waiting: list[str] = []
    total = 0
    for message in sanitize_history(messages):
        if message.role == "assistant":
            waiting = [call.name for call in message.tool_calls]
            total = len(waiting)
            result.append(Message(role="assistant", content=_object_of(message)))
        elif message.role == "tool":
            add_user(result, told_result(message, waiting, total))
        elif message.role == "user":
            add_user(result, message.content)
    return result


def _signature(tool: ToolSchema) -> str:
    required = tool.parameters.get("required", [])
    properties = tool.parameters.get("properties", {})
    fields = (f"{key}{'' if key in required else '?'}: {value['type']}" for key, value in properties.items())
    return "{" + ", ".join(fields) + "}"


def _object_of(message: Message) -> str:
    """As the model wrote it where that is such an object; else its calls in that form."""
    if not message.tool_calls or _read(message.content) is not None:
        return message.content
    actions = [{"name": c.name, "arguments": parse_object(c.arguments) or {}} for c in message.tool_calls]
    return dump_object({"why": message.content, "actions": actions})


def read_object(reply: Reply, tools: Sequence[ToolSchema], *, turn: int) -> Reply:
    """The reply with its object's actions as calls. A reply that was cut off or refused has none."""
    if reply.calls or reply.finish_reason in ("length", "refusal") or not tools:
        return reply
    actions, names = _read(reply.text), [tool.name for tool in tools]
    problem = ""
    if actions is None:
        problem = render_template("json_error.j2", kind="no_object", found="", names="")
    elif unknown := next((str(a["name"]) for a in actions if a["name"] not in names), None):
        problem = render_template("json_error.j2", kind="unknown_action", found=unknown, names=", ".join(names))
    if problem or actions is None:
        return reply.model_copy(update={"raw": {**reply.raw, "format_error": problem}})
    calls = tuple(
        ToolCall(id=f"text_{turn}_{k}", name=action["name"], arguments=dump_object(_given(action["arguments"])))
        for k, action in enumerate(actions)
    )
    return reply.model_copy(update={"calls": calls, "finish_reason": "tool_calls" if calls else reply.finish_reason})


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in arguments.items() if value is not None}


def _read(text: str) -> list[dict[str, Any]] | None:
    """The object's actions; a lone action counts as a list of one. None where there is no such object."""
    fenced = _FENCED.match(text)
    value = parse_object(fenced[1] if fenced else text)
    if value is None:
        return None
    actions = value.get("actions", [value] if "name" in value else None)
    if not isinstance(actions, list) or not all(_is_action(action) for action in actions):
        return None
    return [{"name": action["name"], "arguments": action.get("arguments") or {}} for action in actions]


def _is_action(value: Any) -> bool:
    arguments = value.get("arguments") or {} if isinstance(value, dict) else None
    return isinstance(arguments, dict) and isinstance(value.get("name"), str)

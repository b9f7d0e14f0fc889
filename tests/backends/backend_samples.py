"""Messages and tool schemas that several tests of backends use."""

from agent.backends.base import Message, ToolCall, ToolSchema


def schema(name: str, required: tuple[str, ...] = (), **types: str) -> ToolSchema:
    properties = {key: {"type": kind} for key, kind in types.items()}
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return ToolSchema(name=name, description=f"Does {name}.", parameters=parameters)


TOOLS = (
    schema("bash", ("command",), command="string", timeout_s="number"),
    schema("write_file", ("path", "content"), path="string", content="string"),
    schema("edit_file", ("path", "old", "new"), path="string", old="string", new="string"),
    schema("compile"),
    schema("submit", (), summary="string"),
)


def user(text: str = "go") -> Message:
    return Message(role="user", content=text)


def assistant(text: str = "", *calls: tuple[str, str, str]) -> Message:
    """Calls are (id, name, raw arguments)."""
    made = tuple(ToolCall(id=id, name=name, arguments=arguments) for id, name, arguments in calls)
    return Message(role="assistant", content=text, tool_calls=made)


def result(id: str, text: str = "done") -> Message:
    return Message(role="tool", content=text, tool_call_id=id)

"""The actions a model may take: argument models, their schemas, and the parsing of one call."""

import functools
import json
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from agent.backends.base import ToolCall, ToolSchema
from agent.loop.prompts import action_texts

COMMAND_BYTES: Final = 120_000  # the kernel refuses a single argument above 128 KiB
FILE_CHARS: Final = 2_000_000
CHECKS: Final = ("memcheck", "racecheck", "initcheck")


def _encodable(value: object) -> object:
    try:
        if isinstance(value, str):
            value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"holds a lone surrogate at character {error.start}, which no file or command can hold"
        ) from None
    return value


def _command(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a NUL character")
    if len(text.encode("utf-8")) > COMMAND_BYTES:
        raise ValueError(f"is longer than {COMMAND_BYTES} bytes; write a file and run it")
    return text


def _path(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a NUL character")
    return text


Text = Annotated[str, Field(max_length=FILE_CHARS), BeforeValidator(_encodable)]
Nonempty = Annotated[str, Field(min_length=1, max_length=FILE_CHARS), BeforeValidator(_encodable)]
Path = Annotated[str, Field(min_length=1, max_length=1000), BeforeValidator(_encodable), AfterValidator(_path)]


class Arguments(BaseModel):
    """Base of all argument models."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Bash(Arguments):
    command: Annotated[Nonempty, AfterValidator(_command)]
    timeout_s: float | None = Field(None, gt=0)


class WriteFile(Arguments):
    path: Path
    content: Text


class EditFile(Arguments):
    path: Path
    old: Nonempty
    new: Text


class Compile(Arguments):
    pass


class Verify(Arguments):
    pass


class Profile(Arguments):
    pass


class Inspect(Arguments):
    counters: bool = False
    code: Text = ""


def _checks(text: str) -> str:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in CHECKS]:
        raise ValueError(f"{', '.join(unknown)}: there are {', '.join(CHECKS)}")
    return ",".join(names)


class Sanitize(Arguments):
    checks: Annotated[Text, AfterValidator(_checks)] = ""


class Submit(Arguments):
    summary: Text = ""


ACTIONS: Final[dict[str, type[Arguments]]] = {
    "bash": Bash,
    "write_file": WriteFile,
    "edit_file": EditFile,
    "compile": Compile,
    "verify": Verify,
    "profile": Profile,
    "inspect": Inspect,
    "sanitize": Sanitize,
    "submit": Submit,
}

GPU_ACTIONS: Final = frozenset({"inspect", "sanitize"})
"""Offered on target cuda only."""

REPEATABLE: Final = frozenset({"write_file", "compile", "verify", "profile", "inspect", "sanitize", "submit"})
"""Leave the same state whether they ran once or twice: executed again when a crash left one without an observation."""


@dataclass(frozen=True)
class Action:
    """A call whose name and arguments are valid."""

    call_id: str
    name: str
    arguments: Arguments


@dataclass(frozen=True)
class Invalid:
    """A call that cannot be executed, with what is wrong; `schema` is one line, empty where the action is unknown."""

    call_id: str
    name: str
    problem: str
    schema: str


def action_names(target: str) -> tuple[str, ...]:
    """What is offered on this target."""
    return tuple(name for name in ACTIONS if target == "cuda" or name not in GPU_ACTIONS)


@functools.cache
def tool_schemas(target: str = "cpu") -> tuple[ToolSchema, ...]:
    """The actions of a target as the model sees them."""
    return tuple(
        ToolSchema(name=name, description=action_texts()[name], parameters=_parameters(name, ACTIONS[name]))
        for name in action_names(target)
    )


def schema_line(name: str) -> str:
    """One line such as `bash(command: string, timeout_s?: number)`."""
    parameters = next(schema.parameters for schema in tool_schemas("cuda") if schema.name == name)
    required = parameters.get("required", ())
    fields = (
        f"{key}{'' if key in required else '?'}: {value['type']}" for key, value in parameters["properties"].items()
    )
    return f"{name}({', '.join(fields)})"


def parse_call(call: ToolCall) -> Action | Invalid:
    """Never raises: whatever a model wrote becomes an action or says what is wrong with it."""
    kind = ACTIONS.get(call.name)
    if kind is None:
        return Invalid(call.id, call.name, f"there is no action {call.name!r}", "")
    try:
        arguments = kind.model_validate(_load_object(call.arguments))
    except ValidationError as error:
        return Invalid(call.id, call.name, _first_problems(error), schema_line(call.name))
    except ValueError as error:
        return Invalid(call.id, call.name, str(error), schema_line(call.name))
    return Action(call.id, call.name, arguments)


def _load_object(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text or "{}")
    except json.JSONDecodeError as error:
        raise ValueError(f"the arguments are not valid JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError("the arguments are nested too deeply") from None
    if not isinstance(data, dict):
        raise ValueError(f"the arguments must be a JSON object, not {type(data).__name__}")
    return data


def _first_problems(error: ValidationError) -> str:
    problems = []
    for item in error.errors(include_url=False)[:4]:
        field = ".".join(map(str, item["loc"])) or "arguments"
        problems.append(f"{field}: {item['msg'].removeprefix('Value error, ')}")
    return "; ".join(problems)


def _parameters(name: str, kind: type[Arguments]) -> dict[str, Any]:
    """A plain JSON schema: one type a field, no titles, no unions, so that every server's template can render it."""
    schema = kind.model_json_schema()
    properties = {field: _property(f"{name}.{field}", value) for field, value in schema.get("properties", {}).items()}
    return {
        "type": "object",
        "properties": properties,
        "required": schema.get("required", []),
        "additionalProperties": False,
    }


def _property(key: str, value: dict[str, Any]) -> dict[str, Any]:
    types = [option["type"] for option in value.get("anyOf", [value]) if option["type"] != "null"]
    return {"type": types[0], "description": action_texts()[key]}

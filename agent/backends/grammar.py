"""Grammars and schemas that hold a model to our notations, for servers that constrain what is sampled.

`action_grammar` is GBNF, as llama.cpp takes it; its sentences are what fences.py reads without complaint.
`actions_schema` is a JSON schema with an object at its root and no optional member, as strict servers want it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent.backends.base import ToolSchema
from agent.backends.fences import BODY_ARGUMENT

MOST_BLOCKS: Final = 4
_PROSE_LINES: Final = 8
# A body's line never opens with a fence; an edit's line never with the marks around it.
_COMMON: Final = """\
prose ::= proseline{0,%d}
proseline ::= [^`\\n]* "\\n"
body ::= line*
line ::= ( [^`\\n] [^\\n]* | "`" ( [^`\\n] [^\\n]* | "`" [^`\\n] [^\\n]* ) )? "\\n"
editbody ::= editline*
editline ::= ( [^`<>=\\n] [^\\n]* )? "\\n"
word ::= [A-Za-z0-9_./-]+
number ::= [0-9]+
truth ::= "true" | "false"
"""
_VALUES: Final = {"number": "number", "integer": "number", "boolean": "truth"}


def action_grammar(tools: Sequence[ToolSchema], *, most: int) -> str:
    """Up to _PROSE_LINES lines without backticks, then one to `most` action blocks, then the end."""
    more = f' ( "\\n\\n" block ){{0,{most - 1}}}' if most > 1 else ""
    names = [tool.name.replace("_", "-") for tool in tools]
    rules = [f"root ::= prose block{more}", f'block ::= "```action " ( {" | ".join(names)} ) "```"']
    rules += [f"{name} ::= {_rule(tool)}" for name, tool in zip(names, tools, strict=True)]
    return "\n".join(rules) + "\n" + _COMMON % _PROSE_LINES


def _rule(tool: ToolSchema) -> str:
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", [])
    body = BODY_ARGUMENT.get(tool.name)
    parts = [json.dumps(tool.name)]
    edit = tool.name == "edit_file"
    for key, value in properties.items():
        if key == body or (edit and key in ("old", "new")):
            continue
        field = f'" {key}=" {_VALUES.get(value.get("type"), "word")}'
        parts.append(field if key in required else f"( {field} )?")
    parts.append(r'"\n"')
    if edit:
        parts.append(r'"<<<<<<< old\n" editbody "=======\n" editbody ">>>>>>> new\n"')
    elif body in properties:
        parts.append("line body" if body in required else "body")
    return " ".join(parts)


def actions_schema(tools: Sequence[ToolSchema]) -> dict[str, Any]:
    """{"why": text, "actions": [{"name": …, "arguments": {…}}, …]}; what is optional may be null instead."""
    options = [
        _object({"name": {"type": "string", "enum": [tool.name]}, "arguments": _arguments(tool)}) for tool in tools
    ]
    actions = {"type": "array", "items": {"anyOf": options}, "minItems": 1, "maxItems": MOST_BLOCKS}
    return _object({"why": {"type": "string"}, "actions": actions})


def _arguments(tool: ToolSchema) -> dict[str, Any]:
    required = tool.parameters.get("required", [])
    properties = {
        key: {**value, "type": value["type"] if key in required else [value["type"], "null"]}
        for key, value in tool.parameters.get("properties", {}).items()
    }
    return _object(properties)


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }

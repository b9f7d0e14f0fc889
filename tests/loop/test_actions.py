"""Calls become validated actions, or say exactly what is wrong with them."""

import json

import pytest

from agent.backends.base import ToolCall
from agent.backends.fences import ACTION_NAMES
from agent.loop.actions import (
    ACTIONS,
    GPU_ACTIONS,
    Action,
    Bash,
    EditFile,
    Invalid,
    Sanitize,
    parse_call,
    schema_line,
    tool_schemas,
)


def parse(name: str, arguments: str) -> Action | Invalid:
    return parse_call(ToolCall(id="1", name=name, arguments=arguments))


def test_a_valid_call_is_an_action_with_typed_arguments() -> None:
    parsed = parse("bash", '{"command": "ls", "timeout_s": "30"}')
    assert isinstance(parsed, Action)
    assert parsed.arguments == Bash(command="ls", timeout_s=30.0)
    assert isinstance(parse("compile", ""), Action)
    assert isinstance(parse("submit", "{}"), Action)
    checks = parse("sanitize", '{"checks": " memcheck, racecheck"}')
    assert isinstance(checks, Action) and checks.arguments == Sanitize(checks="memcheck,racecheck")
    edit = parse("edit_file", json.dumps({"path": "a", "old": " x\n", "new": ""}))
    assert isinstance(edit, Action)
    assert edit.arguments == EditFile(path="a", old=" x\n", new="")


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("bash", '{"command": "ls"', "not valid JSON"),
        ("bash", '["ls"]', "must be a JSON object, not list"),
        ("bash", '"ls"', "must be a JSON object, not str"),
        ("bash", "{}", "command: Field required"),
        ("bash", '{"command": ""}', "command: String should have at least 1"),
        ("bash", '{"command": 5}', "command: Input should be a valid string"),
        ("bash", '{"command": "ls", "timeout_s": -1}', "timeout_s: Input should be greater than 0"),
        ("bash", '{"command": "ls", "shell": "zsh"}', "shell: Extra inputs are not permitted"),
        ("bash", '{"command": "a\\u0000b"}', "command: holds a NUL"),
        ("bash", '{"command": "echo \\ud83d"}', "lone surrogate at character 5"),
        ("bash", json.dumps({"command": "x" * 130_000}), "longer than 120000 bytes"),
        ("write_file", '{"path": "a"}', "content: Field required"),
        ("write_file", '{"path": "a", "content": "\\udc80"}', "lone surrogate"),
        ("edit_file", '{"path": "a", "old": "", "new": "x"}', "old: String should have at least 1"),
        ("compile", '{"target": "cpu"}', "target: Extra inputs"),
        ("sanitize", '{"checks": "memcheck, leaks"}', "leaks: there are memcheck, racecheck, initcheck"),
        ("bash", "[" * 100_000, "arguments"),
    ],
)
def test_an_invalid_call_says_what_is_wrong(name: str, arguments: str, words: str) -> None:
    parsed = parse(name, arguments)
    assert isinstance(parsed, Invalid)
    assert words in parsed.problem
    assert parsed.schema == schema_line(name)


def test_an_unknown_action_is_named() -> None:
    parsed = parse("python", "{}")
    assert isinstance(parsed, Invalid)
    assert (parsed.problem, parsed.schema) == ("there is no action 'python'", "")


def test_schemas_are_plain_objects_with_words_for_everything() -> None:
    schemas = tool_schemas("cuda")
    assert [schema.name for schema in schemas] == list(ACTIONS)
    assert [schema.name for schema in tool_schemas()] == [name for name in ACTIONS if name not in GPU_ACTIONS]
    for schema in schemas:
        assert schema.description
        assert schema.parameters["type"] == "object"
        assert schema.parameters["additionalProperties"] is False
        for value in schema.parameters["properties"].values():
            assert set(value) == {"type", "description"}
            assert isinstance(value["type"], str)
            assert value["description"]


def test_schema_lines() -> None:
    assert schema_line("bash") == "bash(command: string, timeout_s?: number)"
    assert schema_line("edit_file") == "edit_file(path: string, old: string, new: string)"
    assert schema_line("verify") == "verify()"


def test_the_fenced_text_protocol_knows_the_same_actions() -> None:
    assert tuple(ACTIONS) == ACTION_NAMES

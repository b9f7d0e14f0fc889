"""One JSON object per reply: constrained by the server where it can, read where it is exact, explained where not."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from backend_samples import TOOLS, assistant, result, user

from agent.backends.base import Message, Reply
from agent.backends.grammar import actions_schema
from agent.backends.json_protocol import JsonProtocolBackend, as_objects, read_object, response_format
from agent.backends.scripted_steps import reply

ACTION = {"name": "bash", "arguments": {"command": "ls", "timeout_s": None}}
OBJECT = json.dumps({"why": "look", "actions": [ACTION, {"name": "compile", "arguments": {}}]})


@pytest.mark.parametrize("text", [OBJECT, f"```json\n{OBJECT}\n```", f"\n {OBJECT} \n"])
def test_objects_are_read(text: str) -> None:
    found = read_object(Reply(text=text), TOOLS, turn=2)
    assert [(call.name, json.loads(call.arguments)) for call in found.calls] == [
        ("bash", {"command": "ls"}),
        ("compile", {}),
    ]


def test_a_lone_action_counts() -> None:
    assert [call.name for call in read_object(Reply(text=json.dumps(ACTION)), TOOLS, turn=0).calls] == ["bash"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Let me look.", "exactly one JSON object"),
        (f"Here: {OBJECT}", "exactly one JSON object"),
        ('{"actions": [{"name": 3}]}', "exactly one JSON object"),
        ('{"actions": [{"name": "run"}]}', "There is no action run"),
    ],
)
def test_the_rest_is_explained(text: str, says: str) -> None:
    found = read_object(Reply(text=text), TOOLS, turn=0)
    assert not found.calls and says in found.raw["format_error"]


def test_a_cut_off_reply_has_no_calls() -> None:
    assert read_object(Reply(text=OBJECT, finish_reason="length"), TOOLS, turn=0).calls == ()


def test_history_is_sent_as_it_was_written_and_native_calls_are_translated() -> None:
    said = assistant("I look.", ("a", "bash", '{"command": "ls"}'))
    messages = [Message(role="system", content="rules"), user(), said, result("a", "two files"), user("go on")]
    system, first, second, third = as_objects(messages, TOOLS)
    assert system.content.startswith("rules") and "bash {command: string, timeout_s?: number}" in system.content
    assert json.loads(second.content) == {
        "why": "I look.",
        "actions": [{"name": "bash", "arguments": {"command": "ls"}}],
    }
    assert (first.role, third.role) == ("user", "user") and third.content.endswith("two files\n\ngo on")
    written = assistant(OBJECT, ("a", "bash", '{"command": "ls"}'))
    assert as_objects([user(), written, result("a")], TOOLS)[2].content == OBJECT


@pytest.mark.parametrize("form", ["json_schema", "json_object", "json_object_schema"])
def test_the_schema_travels_in_the_form_that_the_server_knows(connect: Callable[..., Any], form: str) -> None:
    pair = connect(reply(OBJECT))
    answer = JsonProtocolBackend(pair.backend, form=form).chat([user()], TOOLS)
    assert len(answer.calls) == 2 and "tools" not in pair.sent
    assert pair.sent["response_format"] == response_format(TOOLS, form)
    assert pair.backend.describe()["constrained_by"] == ["response_format"]


def test_a_server_that_refuses_the_schema_is_asked_without(connect: Callable[..., Any]) -> None:
    pair = connect(reply(OBJECT), server={"refuse": ["response_format"]})
    assert len(JsonProtocolBackend(pair.backend, form="json_schema").chat([user()], TOOLS).calls) == 2
    assert "response_format" not in pair.sent and pair.backend.describe()["refused_fields"] == ["response_format"]


def test_the_schema_is_one_that_strict_servers_take() -> None:
    def check(schema: dict[str, Any]) -> None:
        if schema.get("type") == "object":
            assert schema["additionalProperties"] is False and schema["required"] == list(schema["properties"])
        items = [schema["items"]] if "items" in schema else []
        for inner in (*schema.get("properties", {}).values(), *schema.get("anyOf", ()), *items):
            check(inner)

    schema = actions_schema(TOOLS)
    check(schema)
    names = [option["properties"]["name"]["enum"] for option in schema["properties"]["actions"]["items"]["anyOf"]]
    assert names == [[tool.name] for tool in TOOLS]

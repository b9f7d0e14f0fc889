"""Calls in other notations: read where they are certain, never guessed."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from backend_samples import TOOLS, user

from agent.backends.base import Reply
from agent.backends.foreign import with_foreign_calls
from agent.backends.protocols import AutoProtocolBackend
from agent.backends.scripted_steps import reply

ONE = '{"name": "bash", "arguments": {"command": "ls"}}'


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (f"I look.\n<tool_call>\n{ONE}\n</tool_call>", ["bash"]),
        (f"<tool_call>{ONE}</tool_call>\n<tool_call>{ONE}</tool_call>", ["bash", "bash"]),
        (f"<tool_call>\n{ONE}", ["bash"]),
        (f"So:\n```json\n{ONE}\n```\n", ["bash"]),
        (ONE, ["bash"]),
        ('{"name": "compile", "parameters": {}}', ["compile"]),
        ('{"name": "bash", "arguments": "{\\"command\\": \\"ls\\"}"}', ["bash"]),
    ],
)
def test_certain_ones_are_read(text: str, names: list[str]) -> None:
    found = with_foreign_calls(Reply(text=text), TOOLS, turn=3)
    assert found is not None and [call.name for call in found.calls] == names
    assert found.text == text and found.raw["calls_read_from"] == "text"
    assert len({call.id for call in found.calls}) == len(names)


@pytest.mark.parametrize(
    "text",
    [
        "no call",
        '{"name": "nosuch", "arguments": {}}',
        '{"name": "bash", "arguments": [1]}',
        '{"name": "bash", "arguments": {}, "why": "?"}',
        f"<tool_call>{ONE}</tool_call><tool_call>{{broken}}</tool_call>",
        '```json\n{"some": "data"}\n```',
    ],
)
def test_everything_else_is_not(text: str) -> None:
    assert with_foreign_calls(Reply(text=text), TOOLS, turn=0) is None


def test_a_server_without_a_parser_for_its_model_is_usable_natively(connect: Callable[..., Any]) -> None:
    pair = connect(reply(f"<tool_call>{ONE}</tool_call>"))
    answer = AutoProtocolBackend(pair.backend).chat([user()], TOOLS)
    assert [json.loads(call.arguments) for call in answer.calls] == [{"command": "ls"}]
    assert answer.finish_reason == "tool_calls" and "tools" in pair.sent

"""Models without tools: the protocol over HTTP, native histories, repair messages, and the automatic fall-back."""

import json
from itertools import pairwise
from typing import Any

import pytest
from backend_samples import TOOLS, assistant, result, user
from hypothesis import given
from hypothesis import strategies as st

from agent.backends.base import Message, Reply
from agent.backends.protocols import AutoProtocolBackend
from agent.backends.scripted_steps import error, reply
from agent.backends.text_protocol import TextProtocolBackend, as_text, read_actions
from agent.errors import BackendError

ACTION = "Let me look.\n\n```action bash timeout_s=5\nls -l\n```"


def test_actions_are_read_out_of_the_text(connect: Any) -> None:
    pair = connect(reply(ACTION))
    got = TextProtocolBackend(pair.backend).chat([Message(role="system", content="Be good."), user()], TOOLS)
    assert [(c.name, json.loads(c.arguments)) for c in got.calls] == [("bash", {"command": "ls -l", "timeout_s": 5})]
    assert (got.text, got.finish_reason) == (ACTION, "tool_calls")
    assert "format_error" not in got.raw


def test_the_server_sees_no_tools_but_instructions(connect: Any) -> None:
    pair = connect(reply(ACTION))
    TextProtocolBackend(pair.backend).chat([Message(role="system", content="Be good."), user()], TOOLS)
    system = pair.sent["messages"][0]["content"]
    assert "tools" not in pair.sent and "tool_choice" not in pair.sent
    assert system.startswith("Be good.")
    for usage in (
        "```action bash [timeout_s=…]\nCOMMAND\n```",
        "```action write_file path=…\nCONTENT\n```",
        "```action compile\n```",
        "<<<<<<< old\nOLD TEXT\n=======\nNEW TEXT\n>>>>>>> new",
    ):
        assert usage in system


def test_what_the_model_wrote_is_sent_back_unchanged(connect: Any) -> None:
    pair = connect(reply(ACTION), reply("```action submit\ndone\n```"))
    backend = TextProtocolBackend(pair.backend)
    first = backend.chat([user()], TOOLS)
    said = Message(role="assistant", content=first.text, tool_calls=first.calls)
    second = backend.chat([user(), said, result(first.calls[0].id, "total 0")], TOOLS)
    assert [(m["role"], m["content"]) for m in pair.sent["messages"][1:]] == [
        ("user", "go"),
        ("assistant", ACTION),
        ("user", "Result of action bash:\ntotal 0"),
    ]
    assert first.calls[0].id != second.calls[0].id


def test_native_history_becomes_blocks_and_user_messages() -> None:
    calls = (("a", "bash", '{"command": "ls"}'), ("b", "compile", "{}"))
    messages = as_text([user(), assistant("hm", *calls), result("b", "built"), result("a", "x.cpp"), user("on")], TOOLS)
    assert [m.role for m in messages] == ["system", "user", "assistant", "user"]
    assert messages[2].content == "hm\n\n```action bash\nls\n```\n\n```action compile\n```"
    assert messages[3].content == (
        "Result of action bash (1 of 2):\nx.cpp\n\nResult of action compile (2 of 2):\nbuilt\n\non"
    )


@given(st.lists(st.sampled_from([user(), assistant("x"), assistant("", ("a", "bash", "[")), result("a")]), max_size=8))
def test_roles_alternate_in_every_history(messages: list[Message]) -> None:
    roles = [message.role for message in as_text(messages, TOOLS)]
    assert roles[0] == "system" and "tool" not in roles
    assert not any(pair == ("user", "user") for pair in pairwise(roles))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("```bash\nrm -rf kernels\n```", "no action block, so nothing was run"),
        ("```write_file path=a\nx\n```", "must start with the word action"),
        ('<tool_call>{"name": "bash"}</tool_call>', "another notation (<tool_call>)"),
        ("```action shell\nls\n```", "There is no action shell"),
        ("```action bash ls\n```", "cannot read 'ls'"),
        ("```action bash\nls\n```\n```action edit_file path=a\nnothing\n```", "<<<<<<< old"),
    ],
)
def test_near_misses_are_explained_and_not_run(text: str, says: str) -> None:
    got = read_actions(Reply(text=text), TOOLS, turn=0)
    assert got.calls == () and says in got.raw["format_error"]


def test_plain_prose_is_no_format_error() -> None:
    got = read_actions(Reply(text="I think we are done."), TOOLS, turn=0)
    assert (got.calls, "format_error" in got.raw) == ((), False)


def test_an_example_beside_an_action_is_no_problem() -> None:
    got = read_actions(Reply(text="```bash\nmake\n```\n" + ACTION), TOOLS, turn=0)
    assert [call.name for call in got.calls] == ["bash"]


def test_a_reply_that_was_cut_off_is_not_executed(connect: Any) -> None:
    pair = connect(reply("```action bash\nrm -rf /tmp/scratch", finish="length"))
    got = TextProtocolBackend(pair.backend).chat([user()], TOOLS)
    assert (got.calls, got.finish_reason, "format_error" in got.raw) == ((), "length", False)


def test_actions_drafted_in_thoughts_are_not_executed(connect: Any) -> None:
    thoughts = "I could\n```action bash\nrm -rf kernels\n```\nbut no.\n</think>\n"
    got = TextProtocolBackend(connect(reply(thoughts + ACTION)).backend).chat([user()], TOOLS)
    assert [json.loads(call.arguments)["command"] for call in got.calls] == ["ls -l"]
    assert got.reasoning is not None and "rm -rf" in got.reasoning


def test_auto_falls_back_once_and_stays(connect: Any) -> None:
    pair = connect(reply(ACTION), reply(ACTION), server={"refuse_tools": True})
    backend = AutoProtocolBackend(pair.backend)
    assert backend.describe()["tool_protocol"] == "native"
    replies = [backend.chat([user()], TOOLS) for _ in range(2)]
    assert [[call.name for call in got.calls] for got in replies] == [["bash"], ["bash"]]
    assert ["tools" in request.body for request in pair.server.chats] == [True, False, False]
    assert [got.attempts for got in replies] == [2, 1]
    assert backend.describe()["tool_protocol"] == "text"
    assert "does not support tools" in backend.describe()["tool_protocol_reason"]


def test_auto_stays_native_where_tools_work(connect: Any) -> None:
    pair = connect(reply("", [("compile", {})]))
    assert AutoProtocolBackend(pair.backend).chat([user()], TOOLS).calls[0].name == "compile"


def test_auto_does_not_hide_other_errors(connect: Any) -> None:
    with pytest.raises(BackendError, match="bad temperature"):
        AutoProtocolBackend(connect(error(400, "bad temperature")).backend).chat([user()], TOOLS)

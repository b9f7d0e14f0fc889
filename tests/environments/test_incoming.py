"""Whatever a trainer holds as an assistant message becomes the Reply that a backend would have given."""

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionMessage

from agent.backends.base import Message, Reply, ToolCall
from agent.environments.incoming import Tokens, to_reply
from agent.errors import ConfigError
from agent.loop.actions import tool_schemas

FENCED = "I look.\n```action bash\nls\n```\n"
CALLS = [{"id": "a", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}]
CALL = ToolCall(id="a", name="bash", arguments='{"command": "ls"}')
PLAIN = {"role": "assistant", "content": "I look.", "tool_calls": CALLS}


def read(message: Any, **options: Any) -> Reply:
    return to_reply(message, turn=1, tools=tool_schemas(), **options)


def choice(message: dict[str, Any]) -> dict[str, Any]:
    entry = {"index": 0, "finish_reason": "tool_calls", "message": message, "token_ids": [7, 8]}
    usage = {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}
    head = {"id": "x", "object": "chat.completion", "created": 1, "model": "tiny", "prompt_token_ids": [1, 2]}
    return {**head, "choices": [entry], "usage": usage}


@pytest.mark.parametrize(
    "message",
    [
        PLAIN,
        {**PLAIN, "tool_calls": [{"function": {"name": "bash", "arguments": {"command": "ls"}}}]},
        choice(PLAIN),
        ChatCompletion.model_validate(choice(PLAIN)),
        ChatCompletionMessage.model_validate(PLAIN),
        Message(
            role="assistant",
            content="I look.",
            tool_calls=(ToolCall(id="a", name="bash", arguments='{"command":"ls"}'),),
        ),
        Reply(text="I look.", calls=(ToolCall(id="a", name="bash", arguments='{"command":"ls"}'),)),
        FENCED,
        {"role": "assistant", "content": FENCED},
        Message(role="assistant", content=FENCED),
    ],
)
def test_every_form_of_the_same_message_is_the_same_call(message: Any) -> None:
    found = read(message)
    (call,) = found.calls
    assert (call.name, json.loads(call.arguments)) == ("bash", {"command": "ls"})
    assert found.text.startswith("I look.")


def test_thoughts_are_told_from_what_is_said() -> None:
    assert (read("<think>hm</think>so").reasoning, read("<think>hm</think>so").text) == ("hm", "so")
    assert read(Message(role="assistant", content="so", reasoning="hm")).reasoning == "hm"


def test_calls_of_a_message_that_was_cut_off_are_dropped() -> None:
    for message in (PLAIN, choice(PLAIN)):
        found = read(message, finish_reason="length")
        assert (found.calls, found.finish_reason) == ((), "length")


def test_blocks_are_not_read_from_a_policy_with_native_calls() -> None:
    assert read(FENCED, protocol="native").calls == ()
    complaint = read("```bash\nls\n```", protocol="text").raw["format_error"]
    assert "action" in complaint
    assert "format_error" not in read("```bash\nls\n```").raw


def test_token_ids_and_logprobs_are_kept_and_counted() -> None:
    found = read(PLAIN, tokens=Tokens(prompt_ids=[1, 2, 3], completion_ids=[4, 5], logprobs=[-0.5, -1.0]))
    assert (found.prompt_token_ids, found.completion_token_ids) == ((1, 2, 3), (4, 5))
    assert found.logprobs == (-0.5, -1.0)
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (3, 2)
    for completion in (choice(PLAIN), ChatCompletion.model_validate(choice(PLAIN))):
        found = read(completion)
        assert (found.prompt_token_ids, found.completion_token_ids) == ((1, 2), (7, 8))
        assert found.usage.completion_tokens == 2


def test_lengths_must_agree() -> None:
    with pytest.raises(ConfigError, match="2 logprobs for 1 completion token ids"):
        Tokens(completion_ids=[1], logprobs=[-0.5, -1.0])
    with pytest.raises(ConfigError, match="for 0 completion"):
        Tokens(logprobs=[-0.5])


@pytest.mark.parametrize(
    "message", [None, 3, ["x"], {}, {"role": "user", "content": "x"}, Message(role="tool", content=""), {"choices": []}]
)
def test_what_is_no_assistant_message_is_refused(message: Any) -> None:
    with pytest.raises(ConfigError):
        read(message)


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"a": found}
    return found


@pytest.mark.parametrize("junk", [b"x", object(), {1, 2}, nested(20_000)], ids=["bytes", "object", "set", "deep"])
@pytest.mark.parametrize("where", ["content", "extra", "reasoning_details", "arguments"])
def test_what_cannot_be_recorded_is_refused_before_the_episode_sees_it(junk: Any, where: str) -> None:
    call = {"id": "a", "function": {"name": "bash", "arguments": junk}}
    message = {**PLAIN, "tool_calls": [call]} if where == "arguments" else {**PLAIN, where: junk}
    with pytest.raises(ConfigError, match="no assistant message"):
        read(message)


@pytest.mark.parametrize("tokens", [{"prompt_ids": 5}, {"completion_ids": [1], "logprobs": 5}, {"prompt_ids": ["x"]}])
def test_ids_that_are_none_are_refused(tokens: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        read(PLAIN, tokens=Tokens(**tokens))

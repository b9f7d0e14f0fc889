"""Dialects of chat completions: what servers send that is not quite what the API says."""

from typing import Any

import pytest

from agent.backends.replies import parse_reply
from agent.backends.retry import RequestFailed
from agent.backends.stream import assemble
from agent.errors import ContextOverflow


def parse(message: dict[str, Any], finish: str | None = "stop", **root: Any) -> Any:
    body = {"choices": [{"message": {"role": "assistant", **message}, "finish_reason": finish}], **root}
    return parse_reply(body, price=None)


def call(arguments: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "compile", "arguments": arguments}, **more}


@pytest.mark.parametrize(("given", "kept"), [({"a": 1}, '{"a": 1}'), (None, "{}"), ("", "{}"), ("[1", "[1")])
def test_arguments_become_strings(given: Any, kept: str) -> None:
    assert parse({"tool_calls": [call(given, id="a")]}).calls[0].arguments == kept


def test_missing_and_repeated_ids_are_made_unique() -> None:
    ids = [c.id for c in parse({"tool_calls": [call("{}"), call("{}", id="x"), call("{}", id="x")]}).calls]
    assert len(set(ids)) == 3 and ids[1] == "x" and all(ids)


def test_calls_with_finish_reason_stop_are_calls() -> None:
    assert parse({"tool_calls": [call("{}", id="a")]}, "stop").finish_reason == "tool_calls"


@pytest.mark.parametrize("number", [10**30, 10**400, float("inf"), float("nan"), -5, "12", None])
def test_counts_that_no_reply_can_have_stay_within_bounds(number: Any) -> None:
    usage = {"prompt_tokens": number, "completion_tokens": number, "cost": number}
    got = parse({"content": "x"}, usage=usage).usage
    assert 0 <= got.prompt_tokens <= 10**12 and 0 <= got.completion_tokens <= 10**12
    assert got.cost_usd is None


def test_content_in_parts() -> None:
    assert parse({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}).text == "ab"


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_reasoning_fields(key: str) -> None:
    got = parse({"content": "x", key: "because"})
    assert (got.text, got.reasoning) == ("x", "because")


@pytest.mark.parametrize(
    ("content", "text", "reasoning"),
    [
        ("<think>a\n</think>\n\nb", "b", "a"),
        ("a</think>b", "b", "a"),
        ("<think>never ends", "", "never ends"),
        ("code with <think> and </think>", "code with <think> and </think>", None),
        ("plain", "plain", None),
    ],
)
def test_thoughts_in_the_text(content: str, text: str, reasoning: str | None) -> None:
    got = parse({"content": content})
    assert (got.text, got.reasoning) == (text, reasoning)


@pytest.mark.parametrize(
    ("content", "refused"),
    [
        ("I'm sorry, but I can't assist with that.", True),
        ("I cannot help you with this request.", True),
        ("Sorry, I’m unable to comply with this.", True),
        ("I can't help but notice that the loop is not vectorised.", False),
        ("I cannot find kernels/x.cpp, so I create it.", False),
        ("I'm sorry, the last edit was wrong. I fix it now.", False),
        ("I can't assist with that.\n```action bash\nls\n```", False),
    ],
)
def test_refusals_in_words_are_taken_conservatively(content: str, refused: bool) -> None:
    assert (parse({"content": content}).finish_reason == "refusal") is refused


def test_the_providers_filter_is_a_refusal_without_calls() -> None:
    got = parse({"tool_calls": [call("{}", id="a")]}, "content_filter")
    assert (got.finish_reason, got.calls) == ("refusal", ())


@pytest.mark.parametrize(
    "body",
    [
        [],
        "text",
        {},
        {"choices": None},
        {"choices": []},
        {"choices": [None]},
        {"choices": [{"message": None}]},
        {"error": {"message": "upstream is down"}},
    ],
)
def test_bodies_without_a_message(body: Any) -> None:
    with pytest.raises(RequestFailed) as caught:
        parse_reply(body, price=None)
    assert caught.value.failure.kind == "protocol"


def test_an_overflow_reported_with_status_200() -> None:
    with pytest.raises(ContextOverflow):
        parse_reply({"error": {"message": "prompt is too long", "code": 400}}, price=None)


def event(delta: dict[str, Any], finish: str | None = None) -> str:
    import json

    return "data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def test_whole_calls_without_an_index_are_kept_apart() -> None:
    lines = [
        ": keep-alive",
        event({"tool_calls": [call('{"a": 1}', id="x")]}),
        event({"tool_calls": [call('{"b": 2}', id="y")]}),
        event({}, "tool_calls"),
        "data: [DONE]",
    ]
    calls = parse_reply(assemble(lines), price=None).calls
    assert [(c.id, c.arguments) for c in calls] == [("x", '{"a": 1}'), ("y", '{"b": 2}')]


def test_a_surrogate_pair_split_over_chunks_is_joined() -> None:
    lines = [event({"content": "\ud83d"}), event({"content": "\ude00"}), event({}, "stop")]
    assert parse_reply(assemble(lines), price=None).text == "😀"


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ([], "protocol"),
        ([event({"content": "a"})], "protocol"),
        (["data: {"], "protocol"),
        (['data: {"error": {"message": "worker died"}}'], "server"),
    ],
)
def test_streams_that_end_badly(lines: list[str], kind: str) -> None:
    with pytest.raises(RequestFailed) as caught:
        assemble(lines)
    assert caught.value.failure.kind == kind


def test_a_stream_may_report_an_overflow() -> None:
    with pytest.raises(ContextOverflow):
        assemble(['data: {"error": {"message": "maximum context length is 10"}}'])

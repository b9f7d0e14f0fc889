"""The OpenAI-compatible client against a real HTTP server: requests, replies, and every way in which servers refuse."""

import json
import socket
from typing import Any

import pytest
from backend_samples import TOOLS, assistant, result, user

from agent.backends.openai_api import OpenAIBackend, ToolsRefused
from agent.backends.scripted_steps import (
    broken_json,
    dropped,
    empty_choices,
    error,
    html,
    overflow,
    rate_limited,
    reply,
)
from agent.config import BackendConfig
from agent.errors import BackendError, ConfigError, ContextOverflow


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_a_call_makes_the_round_trip(connect: Any, stream: bool) -> None:
    arguments = {"command": "ls 'a b' — ünïcode 😀", "timeout_s": 5}
    pair = connect(
        reply("let me look", [("bash", arguments), ("compile", {})], reasoning="hm", cached_tokens=40), stream=stream
    )
    got = pair.backend.chat([user()], TOOLS)
    assert [(c.id, c.name, json.loads(c.arguments)) for c in got.calls] == [
        ("call_0", "bash", arguments),
        ("call_1", "compile", {}),
    ]
    assert (got.text, got.reasoning, got.finish_reason, got.model) == ("let me look", "hm", "tool_calls", "scripted")
    assert (got.usage.prompt_tokens, got.usage.completion_tokens, got.usage.cached_tokens) == (100, 20, 40)
    assert (got.attempts, got.waited_s < got.latency_s) == (1, True)
    assert pair.sent["tool_choice"] == "auto"
    assert [tool["function"]["name"] for tool in pair.sent["tools"]] == [tool.name for tool in TOOLS]


def test_the_reply_is_kept_raw_and_can_be_stored(connect: Any) -> None:
    pair = connect(reply("hi"))
    got = pair.backend.chat([user()], ())
    assert got.raw["choices"][0]["message"]["content"] == "hi"
    assert type(got).model_validate_json(got.model_dump_json()) == got


def test_sampling_and_extra_body_are_sent_and_nothing_else(connect: Any) -> None:
    pair = connect(
        reply("hi"),
        temperature=0.5,
        top_p=0.9,
        seed=7,
        max_output_tokens=99,
        extra_body={"top_k": 20, "chat_template_kwargs": {"enable_thinking": False}},
    )
    pair.backend.chat([user()], ())
    assert pair.sent == {
        "model": "scripted",
        "messages": [{"role": "user", "content": "go"}],
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 7,
        "max_tokens": 99,
        "top_k": 20,
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_describe_names_the_model_and_never_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    config = BackendConfig(model="m", base_url="https://joe:pw@example.org/v1/", api_key_env="MY_KEY")
    text = json.dumps(OpenAIBackend(config).describe())
    assert "example.org/v1" in text
    assert "secret" not in text and "pw" not in text


# --- keys and addresses


def test_no_key_is_asked_for_on_loopback(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert connect(reply("hi")).backend.chat([user()], ()).text == "hi"


def test_a_local_server_is_not_asked_for_through_a_proxy(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert connect(reply("hi")).backend.chat([user()], ()).text == "hi"


def test_a_hosted_server_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(BackendError, match="SOME_KEY is not set") as caught:
        OpenAIBackend(BackendConfig(model="m", base_url="https://example.org/v1", api_key_env="SOME_KEY"))
    assert caught.value.kind == "no_key" and "export SOME_KEY" in caught.value.hint


def test_the_key_is_sent_as_bearer(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-1")
    pair = connect(reply("hi"), server={"api_key": "sk-1"}, api_key_env="MY_KEY")
    assert pair.backend.chat([user()], ()).text == "hi"
    assert pair.server.chats[0].headers["authorization"] == "Bearer sk-1"


def test_a_wrong_key_is_not_tried_again(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-wrong")
    pair = connect(reply("hi"), server={"api_key": "sk-1"}, api_key_env="MY_KEY")
    with pytest.raises(BackendError, match="refused the key") as caught:
        pair.backend.chat([user()], ())
    assert (caught.value.kind, len(pair.server.chats)) == ("auth", 1)
    assert "MY_KEY" in caught.value.hint and "sk-wrong" not in str(caught.value)


def test_a_key_that_the_server_repeats_is_masked(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    pair = connect(error(403, "key sk-very-secret may not"), api_key_env="MY_KEY")
    with pytest.raises(BackendError, match="key … may not"):
        pair.backend.chat([user()], ())


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host/v1", "http://", "http://host:notaport/v1"])
def test_a_base_url_that_is_none(url: str) -> None:
    with pytest.raises(ConfigError, match="base_url"):
        OpenAIBackend(BackendConfig(model="m", base_url=url))


def test_no_model_is_a_usage_error() -> None:
    with pytest.raises(ConfigError, match="no model"):
        OpenAIBackend(BackendConfig(base_url="http://127.0.0.1:1/v1"))


def test_a_pasted_endpoint_is_understood(serve: Any) -> None:
    server = serve([reply("hi")])
    backend = OpenAIBackend(BackendConfig(model="scripted", base_url=server.base_url + "/chat/completions/"))
    assert backend.chat([user()], ()).text == "hi"
    backend.close()


def test_an_unknown_model_names_the_nearest(connect: Any) -> None:
    pair = connect(reply("hi"), server={"models": ("qwen3-coder-30b", "llama-3-8b")}, model="qwen3-coder")
    with pytest.raises(BackendError, match="does not know the model qwen3-coder") as caught:
        pair.backend.chat([user()], ())
    assert caught.value.kind == "model_not_found" and "qwen3-coder-30b" in caught.value.hint
    assert len(pair.server.chats) == 1


def test_a_wrong_path_is_told_apart_from_an_unknown_model(serve: Any) -> None:
    server = serve([reply("hi")])
    backend = OpenAIBackend(BackendConfig(model="m", base_url=server.base_url.removesuffix("/v1")))
    with pytest.raises(BackendError, match="no chat completions at") as caught:
        backend.chat([user()], ())
    assert "/v1" in caught.value.hint
    backend.close()


def test_an_unreachable_server_is_given_up_after_a_few_tries() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    waits: list[float] = []
    backend = OpenAIBackend(BackendConfig(model="m", base_url=f"http://127.0.0.1:{port}/v1"), sleep=waits.append)
    with pytest.raises(BackendError, match="cannot reach") as caught:
        backend.chat([user()], ())
    assert (caught.value.kind, len(waits)) == ("unreachable", 2)
    backend.close()


# --- retries


def test_waits_and_attempts_are_recorded(connect: Any) -> None:
    pair = connect(rate_limited("7"), error(503, "overloaded"), dropped(), reply("ok"))
    got = pair.backend.chat([user()], ())
    assert (got.text, got.attempts) == ("ok", 4)
    assert 7 <= pair.waits[0] <= 7.25
    assert 1 <= pair.waits[1] <= 2 and 2 <= pair.waits[2] <= 4
    assert got.waited_s > 0


def test_a_reply_that_breaks_off_is_asked_for_again(connect: Any) -> None:
    pair = connect(reply("ok").cut_within(), reply("whole"))
    assert pair.backend.chat([user()], ()).text == "whole"


def test_a_stream_that_breaks_off_is_asked_for_again(connect: Any) -> None:
    pair = connect(reply("a longer text").cut_within(), reply("whole"), stream=True)
    got = pair.backend.chat([user()], ())
    assert (got.text, got.attempts) == ("whole", 2)


def test_attempts_are_bounded(connect: Any) -> None:
    pair = connect(*[error(500, "boom")] * 9, max_attempts=4, max_wait_s=1000)
    with pytest.raises(BackendError, match=r"500: boom after 4 attempts") as caught:
        pair.backend.chat([user()], ())
    assert (caught.value.kind, len(pair.server.chats), len(pair.waits)) == ("server", 4, 3)


def test_waiting_is_bounded(connect: Any) -> None:
    pair = connect(*[error(500, "boom")] * 9, max_attempts=9, max_wait_s=3)
    with pytest.raises(BackendError):
        pair.backend.chat([user()], ())
    assert sum(pair.waits) == pytest.approx(3)


def test_a_retry_after_beyond_the_bound_ends_at_once(connect: Any) -> None:
    pair = connect(rate_limited("3600"), reply("never"), max_wait_s=60)
    with pytest.raises(BackendError, match="429") as caught:
        pair.backend.chat([user()], ())
    assert caught.value.kind == "rate_limit" and "3600 s" in caught.value.hint
    assert pair.waits == []


@pytest.mark.parametrize("status", [400, 403, 422])
def test_refusals_are_never_retried(connect: Any, status: int) -> None:
    pair = connect(error(status, "you may not"), reply("never"))
    with pytest.raises(BackendError, match="you may not"):
        pair.backend.chat([user()], ())
    assert (len(pair.server.chats), pair.waits) == (1, [])


def test_a_spent_quota_is_not_waited_for(connect: Any) -> None:
    pair = connect(error(429, "You exceeded your current quota", code="insufficient_quota"), reply("never"))
    with pytest.raises(BackendError) as caught:
        pair.backend.chat([user()], ())
    assert (caught.value.kind, "quota" in caught.value.hint, pair.waits) == ("rate_limit", True, [])


def test_a_slow_server_is_a_timeout(connect: Any) -> None:
    pair = connect(reply("late").after(1.0), timeout_s=0.2, max_attempts=1)
    with pytest.raises(BackendError, match=r"within 0\.2 s") as caught:
        pair.backend.chat([user()], ())
    assert caught.value.kind == "timeout"


# --- answers that are none


@pytest.mark.parametrize(
    ("step", "message", "requests"),
    [
        (html(), r"a web page instead of JSON \(Sign in\)", 1),
        (empty_choices(), "no choices", 3),
        (broken_json(), "invalid JSON", 3),
    ],
    ids=["html", "empty", "broken"],
)
def test_answers_that_are_no_completion(connect: Any, step: Any, message: str, requests: int) -> None:
    pair = connect(*[step] * 9)
    with pytest.raises(BackendError, match=message) as caught:
        pair.backend.chat([user()], ())
    assert (caught.value.kind, len(pair.server.chats)) == ("protocol", requests)


def test_a_proxys_error_page_shows_its_title_only(connect: Any) -> None:
    pair = connect(html(502), max_attempts=1)
    with pytest.raises(BackendError, match=r"502: Sign in$"):
        pair.backend.chat([user()], ())


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_overflow_is_the_end_of_a_budget(connect: Any, stream: bool) -> None:
    pair = connect(overflow(), stream=stream)
    with pytest.raises(ContextOverflow, match="maximum context length"):
        pair.backend.chat([user()], ())
    assert len(pair.server.chats) == 1


@pytest.mark.parametrize(
    "said",
    [
        "the request exceeds the available context size, try increasing it",
        "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "Please reduce the length of the messages or completion.",
    ],
)
def test_overflow_in_other_servers_words(connect: Any, said: str) -> None:
    with pytest.raises(ContextOverflow):
        connect(error(400, said)).backend.chat([user()], ())


def test_a_token_rate_limit_is_no_overflow(connect: Any) -> None:
    pair = connect(error(429, "tokens per minute exceed the configured limit", retry_after="0"), reply("ok"))
    assert pair.backend.chat([user()], ()).text == "ok"


# --- what the model does wrong is data


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("raw", ['{"command": "ls', '["ls"]', '"ls"', "ls -l"])
def test_malformed_arguments_arrive_as_written(connect: Any, raw: str, stream: bool) -> None:
    got = connect(reply("", [("bash", raw)]), stream=stream).backend.chat([user()], TOOLS)
    assert (got.calls[0].arguments, got.finish_reason) == (raw, "tool_calls")


@pytest.mark.parametrize("raw", ['{"command": "ls', '["ls"]', '"ls"', "NaN", '{"x": NaN}'])
def test_malformed_arguments_do_not_poison_the_history(connect: Any, raw: str) -> None:
    pair = connect(reply("ok"))
    history = [user(), assistant("", ("a", "bash", raw)), result("a", "not valid JSON")]
    assert pair.backend.chat(history, TOOLS).text == "ok"
    sent = json.loads(pair.sent["messages"][1]["tool_calls"][0]["function"]["arguments"])
    assert sent == {"invalid_arguments": raw}


def test_calls_of_a_reply_that_was_cut_off_are_not_handed_out(connect: Any) -> None:
    got = connect(reply("", [("bash", '{"command": "rm -rf /tmp/x')], finish="length")).backend.chat([user()], TOOLS)
    assert (got.calls, got.finish_reason) == ((), "length")
    assert got.raw["choices"][0]["message"]["tool_calls"]


def test_a_promise_of_calls_without_any_is_a_cut_off(connect: Any) -> None:
    assert connect(reply("", finish="tool_calls")).backend.chat([user()], TOOLS).finish_reason == "length"


def test_reasoning_that_ate_the_limit_is_kept(connect: Any) -> None:
    got = connect(reply("", reasoning="thinking and thin", finish="length")).backend.chat([user()], TOOLS)
    assert (got.text, got.reasoning, got.finish_reason) == ("", "thinking and thin", "length")


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_refusals_are_recognised(connect: Any, stream: bool) -> None:
    got = connect(reply("", refusal="I can't help with that."), stream=stream).backend.chat([user()], TOOLS)
    assert (got.finish_reason, got.refusal) == ("refusal", "I can't help with that.")


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_lone_surrogates_survive_both_ways(connect: Any, stream: bool) -> None:
    pair = connect(reply("bad \ud83d end", [("bash", {"command": "echo \ud83d"})]), stream=stream)
    got = pair.backend.chat([user("say \ud83d"), assistant("\ud83d"), user("x \ude00")], TOOLS)
    assert got.text == "bad � end"
    assert [m["content"] for m in pair.sent["messages"]] == ["say �", "�", "x �"]
    assert got.model_dump_json().encode("utf-8")


# --- fields that some servers refuse


@pytest.mark.parametrize("place", ["root", "choice"])
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_token_ids_and_logprobs(connect: Any, place: str, stream: bool) -> None:
    pair = connect(reply("hi you", ids=place), stream=stream, record_token_ids=True)
    got = pair.backend.chat([user()], ())
    assert got.prompt_token_ids == (1, 2, 3)
    assert got.completion_token_ids == tuple(b"hi you")
    assert got.logprobs == (-0.25,) * 6
    assert "token_ids" not in json.dumps(got.raw), "stored once"
    assert (pair.sent["return_token_ids"], pair.sent["logprobs"]) == (True, True)


def test_ids_and_logprobs_of_different_length_are_not_trusted(connect: Any) -> None:
    step = reply("hi", ids="root")
    assert isinstance(step.body, dict)
    step.body["choices"][0]["logprobs"]["content"].pop()
    got = connect(step, record_token_ids=True).backend.chat([user()], ())
    assert (got.logprobs, got.completion_token_ids) == (None, tuple(b"hi"))
    assert got.raw["token_record_error"] == "2 token ids but 1 logprobs"


def test_ids_are_not_asked_for_by_default(connect: Any) -> None:
    pair = connect(reply("hi", ids="root"))
    assert pair.backend.chat([user()], ()).completion_token_ids is None
    assert "return_token_ids" not in pair.sent and "logprobs" not in pair.sent


def test_a_refused_field_is_dropped_once_and_remembered(connect: Any) -> None:
    server = {"refuse": ("return_token_ids",)}
    pair = connect(reply("one", ids="root"), reply("two"), server=server, record_token_ids=True)
    assert [pair.backend.chat([user()], ()).text for _ in range(2)] == ["one", "two"]
    assert ["return_token_ids" in request.body for request in pair.server.chats] == [True, False, False]
    assert pair.backend.describe()["refused_fields"] == ["return_token_ids"]
    assert pair.waits == []


def test_stream_options_may_be_refused(connect: Any) -> None:
    pair = connect(reply("one"), server={"refuse": ("stream_options",)}, stream=True)
    assert pair.backend.chat([user()], ()).text == "one"


def test_the_output_limit_goes_by_either_name(connect: Any) -> None:
    pair = connect(reply("one"), server={"refuse": ("max_tokens",)}, max_output_tokens=50)
    assert pair.backend.chat([user()], ()).text == "one"
    assert pair.sent["max_completion_tokens"] == 50 and "max_tokens" not in pair.sent


def test_a_limit_with_a_bad_value_is_not_dropped_silently(connect: Any) -> None:
    pair = connect(error(400, "max_tokens must be at most 16384"), reply("never"), max_output_tokens=99999)
    with pytest.raises(BackendError, match="at most 16384"):
        pair.backend.chat([user()], ())


def test_a_field_the_user_asked_for_is_not_dropped(connect: Any) -> None:
    pair = connect(server={"refuse": ("logprobs",)}, extra_body={"logprobs": True})
    with pytest.raises(BackendError, match="logprobs"):
        pair.backend.chat([user()], ())


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "registry.example/library/gemma does not support tools"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (500, "tools param requires --jinja flag"),
        (404, "No endpoints found that support tool use."),
    ],
)
def test_servers_without_tools_are_recognised(connect: Any, status: int, said: str) -> None:
    with pytest.raises(ToolsRefused):
        connect(error(status, said)).backend.chat([user()], TOOLS)


def test_a_complaint_about_the_history_is_no_refusal_of_tools(connect: Any) -> None:
    said = "An assistant message with 'tool_calls' must be followed by tool messages responding to each call id."
    with pytest.raises(BackendError) as caught:
        connect(error(400, said)).backend.chat([user()], TOOLS)
    assert not isinstance(caught.value, ToolsRefused)


# --- cost


def test_cost_from_configured_prices(connect: Any) -> None:
    prices = {"price_in_per_mtok": 2.0, "price_out_per_mtok": 10.0, "price_cached_per_mtok": 0.5}
    got = connect(reply("hi", cached_tokens=40), **prices).backend.chat([user()], ())
    assert got.usage.cost_usd == pytest.approx((60 * 2 + 40 * 0.5 + 20 * 10) / 1e6)


def test_an_unknown_price_is_none_and_no_crash(connect: Any) -> None:
    assert connect(reply("hi")).backend.chat([user()], ()).usage.cost_usd is None


def test_what_a_router_billed_is_believed(connect: Any) -> None:
    step = reply("hi", usage={"prompt_tokens": 1, "completion_tokens": 1, "cost": 0.125})
    assert connect(step).backend.chat([user()], ()).usage.cost_usd == 0.125


def test_unusable_replies_are_billed_too(connect: Any) -> None:
    prices = {"price_in_per_mtok": 1.0, "price_out_per_mtok": 1.0}
    got = connect(reply("", [("bash", "not json")]), **prices).backend.chat([user()], TOOLS)
    assert got.usage.cost_usd == pytest.approx(120 / 1e6)


def test_usage_that_is_missing_or_odd_counts_nothing(connect: Any) -> None:
    got = connect(reply("hi", usage={"prompt_tokens": None, "prompt_tokens_details": None})).backend.chat([user()], ())
    assert (got.usage.prompt_tokens, got.usage.completion_tokens, got.usage.cost_usd) == (0, 0, None)

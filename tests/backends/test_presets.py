"""Presets as data: what each provider wants different about a request, and that what a user sets wins."""

from collections.abc import Callable
from typing import Any

import pytest
from backend_samples import TOOLS, assistant, result, user

from agent.backends.base import Message
from agent.backends.openai_api import OpenAIBackend
from agent.backends.presets import Preset, names_a_server, preset_for, presets, resolve
from agent.backends.registry import make_backend
from agent.backends.scripted_steps import Step, reply
from agent.config import BackendConfig, load_config
from agent.errors import ConfigError

CALLED = assistant("", ("call-1", "bash", "{}")).model_copy(update={"reasoning": "hm"})
TALKED = assistant("so").model_copy(update={"reasoning": "aha"})
HISTORY = [Message(role="system", content="s"), user(), CALLED, result("call-1"), TALKED, user("more")]


@pytest.mark.parametrize("name", list(presets()))
def test_each_preset_is_complete_and_found_by_name_and_address(name: str) -> None:
    preset = presets()[name]
    resolved = resolve(BackendConfig(name=name, model="m"))
    assert (resolved.base_url, resolved.api_key_env) == (preset.base_url, preset.key_env)
    assert names_a_server(resolved) and resolve(resolved) == resolved
    by_address = preset_for(BackendConfig(base_url=preset.base_url))
    assert by_address.model_copy(update={"key_env": preset.key_env}) == preset
    assert preset.loopback or preset.base_url.startswith("https://")


def test_what_a_user_sets_wins() -> None:
    given = BackendConfig(
        name="ollama",
        model="m",
        base_url="http://127.0.0.1:1/v1",
        context_tokens=32768,
        api_key_env="K",
        reasoning="keep",
    )
    resolved = resolve(given)
    assert (resolved.base_url, resolved.api_key_env, resolved.context_tokens) == (given.base_url, "K", 32768)
    assert (resolved.reasoning, resolved.tool_protocol, resolved.max_output_tokens) == ("keep", "auto", None)


def test_a_short_window_is_met_with_text_and_bounded_replies() -> None:
    resolved = resolve(BackendConfig(base_url="http://127.0.0.1:1/v1", model="m", context_tokens=2048))
    assert (resolved.tool_protocol, resolved.max_output_tokens) == ("text", 819)


def test_what_a_user_must_know_of_a_server_is_said_unless_it_is_settled() -> None:
    said = OpenAIBackend(BackendConfig(name="ollama", model="m")).notice
    assert "OLLAMA_CONTEXT_LENGTH" in said and "--context" in said
    assert OpenAIBackend(BackendConfig(name="ollama", model="m", context_tokens=9000)).notice == ""
    assert make_backend(BackendConfig(name="ollama", model="m")).notice == said  # type: ignore[attr-defined]


def test_an_unknown_server_is_a_plain_one() -> None:
    assert preset_for(BackendConfig(base_url="http://127.0.0.1:1/v1")) == Preset(schema_form="json_schema")
    assert resolve(BackendConfig(name="replay", script="x")) == BackendConfig(name="replay", script="x")


def test_each_models_own_settings_lie_between_file_and_flags(tmp_path: Any) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(
        '[backend]\nmodel = "a"\ntemperature = 0.1\nextra_body = {x = 1}\n'
        '[models."b:7b"]\ntemperature = 0.9\ncontext_tokens = 4096\nextra_body = {y = 2}\n'
    )
    assert load_config(files=[path]).backend.temperature == 0.1
    own = load_config(files=[path], flags={"backend.model": "b:7b"}).backend
    assert (own.temperature, own.context_tokens, own.extra_body) == (0.9, 4096, {"x": 1, "y": 2})
    assert load_config(files=[path], settings=["backend.model=b:7b", "backend.temperature=0"]).backend.temperature == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[models.a]\ntemperatur = 1", "did you mean backend.temperature"),
        ('[models.a]\nmodel = "b"', "cannot set model"),
        ("models = 3", "one table per model"),
    ],
)
def test_settings_of_models_that_make_no_sense(tmp_path: Any, text: str, says: str) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(files=[path])
    assert says in str(caught.value)


def sent(connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, preset: Preset, **config: Any) -> dict[str, Any]:
    """The body that goes to a server which has this preset's quirks."""
    monkeypatch.setattr("agent.backends.openai_api.preset_for", lambda _: preset)
    monkeypatch.setattr("agent.backends.presets.preset_for", lambda _: preset)
    pair = connect(reply("ok"), **config)
    pair.backend.chat(HISTORY, TOOLS)
    return dict(pair.sent)


@pytest.mark.parametrize(
    ("name", "kept"),
    [("openai", [None, None]), ("deepseek", ["hm", None]), ("openrouter", ["hm", None]), ("moonshot", ["hm", None])],
)
def test_reasoning_goes_back_where_the_provider_wants_it(
    connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, name: str, kept: list[str | None]
) -> None:
    preset = presets()[name]
    body = sent(connect, monkeypatch, preset)
    replies = [message for message in body["messages"] if message["role"] == "assistant"]
    assert [message.get(preset.reasoning_field) for message in replies] == kept


def test_all_reasoning_goes_back_where_asked_for_and_none_once_refused(
    connect: Callable[..., Any],
) -> None:
    pair = connect(reply("ok"), reasoning="keep")
    pair.backend.chat(HISTORY, TOOLS)
    assert [m.get("reasoning_content") for m in pair.sent["messages"] if m["role"] == "assistant"] == ["hm", "aha"]
    refusing = Step({"error": {"message": "Unsupported field 'reasoning_content': not supported"}}, status=400)
    pair = connect(refusing, reply("ok"), reasoning="keep")
    assert pair.backend.chat(HISTORY, TOOLS).text == "ok"
    assert not any("reasoning_content" in message for message in pair.sent["messages"])
    assert pair.backend.describe()["refused_fields"] == ["reasoning_content"]


def test_ids_limit_and_cache_marks(connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    body = sent(connect, monkeypatch, presets()["mistral"], max_output_tokens=5)
    call, answer = body["messages"][2]["tool_calls"][0]["id"], body["messages"][3]["tool_call_id"]
    assert call == answer and len(call) == 9 and call.isalnum() and body["max_tokens"] == 5
    assert sent(connect, monkeypatch, presets()["groq"], max_output_tokens=5)["max_completion_tokens"] == 5
    marked = sent(connect, monkeypatch, Preset(cache_marks=("scrip",)))["messages"]
    places = [at for at, m in enumerate(marked) if isinstance(m["content"], list)]
    assert places == [0, 5] and marked[0]["content"][0]["cache_control"] == {"type": "ephemeral"}


def test_a_request_is_a_prefix_of_the_next_one(connect: Callable[..., Any]) -> None:
    pair = connect(reply("", [("bash", {"command": "ls"})]), reply("done"))
    history = [Message(role="system", content="s"), user()]
    first = pair.backend.chat(history, TOOLS)
    said = Message(role="assistant", content=first.text, tool_calls=first.calls)
    pair.backend.chat([*history, said, result(first.calls[0].id)], TOOLS)
    earlier, later = (request.body for request in pair.server.chats)
    assert later["messages"][: len(earlier["messages"])] == earlier["messages"]
    assert later["tools"] == earlier["tools"]


def test_several_calls_of_one_reply_come_back_in_order(connect: Callable[..., Any]) -> None:
    pair = connect(reply("", [("bash", {"command": "a"}), ("bash", {"command": "b"}), ("compile", {})]))
    assert [c.name for c in pair.backend.chat([user()], TOOLS).calls] == ["bash", "bash", "compile"]


def test_deepseeks_place_for_cached_tokens(connect: Callable[..., Any]) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "prompt_cache_hit_tokens": 7}
    assert connect(reply("ok", usage=usage)).backend.chat([user()], ()).usage.cached_tokens == 7


def test_windows_that_servers_tell(connect: Callable[..., Any]) -> None:
    pair = connect(server={"models": ["scripted"]})
    entries = [
        {"id": "a", "max_model_len": 4096},
        {"id": "b", "meta": {"n_ctx": 2048}},
        {"id": "c", "context_length": "?"},
    ]
    pair.server._refusal = lambda request: Step({"data": entries})
    assert pair.backend.served() == {"a": 4096, "b": 2048, "c": 0}

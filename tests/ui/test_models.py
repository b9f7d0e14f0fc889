"""`agent models`: what is listed, and what a test of a model says to a person and to a program."""

import json
from typing import Any

import pytest

from agent.backends.presets import presets
from agent.backends.scripted_server import ScriptedServer
from agent.backends.scripted_steps import reply
from agent.cli import main
from agent.config import BackendConfig
from agent.errors import BackendError
from agent.ui.preflight import check_server

CALL = reply("", [("report_number", {"number": 4817})])
ROUND = (CALL, reply("done"))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["models", *arguments])
    return code, capsys.readouterr().out


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out = run(capsys, *arguments, "--json")
    return code, json.loads(out)


def test_providers_are_listed_with_their_keys(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "a-secret")
    code, found = as_json(capsys)
    rows = {row["name"]: row for row in found["providers"]}
    assert code == 0 and list(rows) == list(presets())
    assert (rows["groq"]["key"], rows["ollama"]["key"]) == ("set", "none needed")
    code, text = run(capsys)
    assert "GROQ_API_KEY" in text and "local" in text and "a-secret" not in text


def test_a_servers_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer([], models=["a", "b"]) as server:
        code, found = as_json(capsys, "--base-url", server.base_url)
    assert code == 0 and [model["name"] for model in found["models"]] == ["a", "b"]
    assert found["prices_as_of"] and found["models"][0]["price_in"] is None
    assert run(capsys, "--base-url", server.base_url)[0] == 3


@pytest.mark.parametrize(
    ("options", "server", "protocol"),
    [
        ([], {}, "native"),
        ([], {"refuse_tools": True}, "text"),
        (["--tool-protocol", "json"], {}, "json"),
        (["--tool-protocol", "json"], {"refuse": ["response_format"]}, "json"),
    ],
)
def test_a_model_that_calls_and_is_answered(
    capsys: pytest.CaptureFixture[str], options: list[str], server: dict[str, Any], protocol: str
) -> None:
    action = {"name": "report_number", "arguments": {"number": 4817}}
    steps = {
        "native": ROUND,
        "text": (reply('```action report_number\n{"number": 4817}\n```'), reply("done")),
        "json": (reply(json.dumps({"why": "asked", "actions": [action]})), reply("done")),
    }[protocol]
    with ScriptedServer(steps, **server) as running:
        code, found = as_json(capsys, "test", "scripted", "--base-url", running.base_url, *options)
    trip = found["round_trip"]
    assert (code, found["ok"], trip["protocol"]) == (0, True, protocol)
    assert trip["refused_fields"] == server.get("refuse", []) and trip["prompt_tokens"] == 200
    assert trip["cost_usd"] is None


def test_a_model_that_does_not_call_cannot_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer([reply("Hello!")]) as server:
        code, text = run(capsys, "test", "scripted", "--base-url", server.base_url)
    assert code == 3 and "NO  tool call" in text and "Hello!" in text


def test_a_provider_in_front_of_the_name(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    code, found = as_json(capsys, "test", "groq/some/model")
    assert (code, found["backend"], found["model"]) == (3, "groq", "some/model")
    assert "GROQ_API_KEY" in found["checks"][0]["detail"]
    code, found = as_json(
        capsys, "test", "groq/some/model", "--backend", "ollama", "--base-url", "http://127.0.0.1:9/v1"
    )
    assert (found["backend"], found["model"]) == ("ollama", "groq/some/model")


def test_errors_are_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = as_json(capsys, "test")
    assert code == 2 and found["type"] == "error" and "no model is named" in found["message"]
    assert as_json(capsys, "--backend", "replay")[0] == 2


def test_a_window_that_the_server_tells_is_known_before_the_run() -> None:
    from agent.backends.scripted_steps import Step

    with ScriptedServer([]) as server:
        server._refusal = lambda request: Step({"data": [{"id": "m", "max_model_len": 8192}]})  # type: ignore[method-assign]
        config = BackendConfig(base_url=server.base_url, model="m")
        assert check_server(config) == 8192
        assert check_server(config.model_copy(update={"context_tokens": 2048})) == 0
        assert check_server(config.model_copy(update={"model": "other"})) == 0
    with pytest.raises(BackendError):
        check_server(config)

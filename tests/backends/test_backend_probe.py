"""The doctor's view of a backend: each check fails for its own reason, and says so."""

from typing import Any

import pytest

from agent.backends.probe import probe
from agent.backends.scripted_server import history_problems
from agent.backends.scripted_steps import Step, reply
from agent.config import BackendConfig


def names(checks: Any) -> list[tuple[str, bool]]:
    return [(name, ok) for name, ok, _ in checks]


def obedient(body: Any) -> Step:
    """A model that calls the function it was offered and thanks for the result."""
    if body["messages"][-1]["role"] == "tool":
        return reply("Done.")
    if not body.get("tools"):
        return reply("```action report_number number=4817\n```")
    return reply("", [("report_number", {"number": 4817})])


def test_all_is_well(serve: Any) -> None:
    server = serve(obedient)
    checks = probe(BackendConfig(model="scripted", base_url=server.base_url))
    assert names(checks) == [("server", True), ("model", True), ("tool call", True)]
    assert "native" in checks[-1][2]
    assert len(server.chats) == 2 and history_problems(server.chats[1].body["messages"]) == []


def test_a_server_without_tools_is_usable_as_text(serve: Any) -> None:
    checks = probe(BackendConfig(model="scripted", base_url=serve(obedient, refuse_tools=True).base_url))
    assert names(checks)[-1] == ("tool call", True) and "text" in checks[-1][2]


def test_a_model_that_only_talks_fails_the_call(serve: Any) -> None:
    checks = probe(BackendConfig(model="scripted", base_url=serve(lambda _: reply("4817!")).base_url))
    assert names(checks)[-1] == ("tool call", False) and "4817!" in checks[-1][2]


def test_an_unknown_model(serve: Any) -> None:
    server = serve(obedient, models=("qwen3-coder",))
    checks = probe(BackendConfig(model="qwen3", base_url=server.base_url))
    assert names(checks) == [("server", True), ("model", False)]
    assert "qwen3-coder" in checks[-1][2] and server.chats == []


def test_a_wrong_key(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
    checks = probe(BackendConfig(model="scripted", base_url=serve(obedient, api_key="sk-1").base_url))
    assert names(checks) == [("key", False)]


def test_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    assert names(probe(BackendConfig(model="m", api_key_env="NO_SUCH_KEY"))) == [("key", False)]


def test_nobody_listens(serve: Any) -> None:
    server = serve(obedient)
    config = BackendConfig(model="scripted", base_url=server.base_url.replace("127.0.0.1", "127.0.0.9"))
    assert names(probe(config)) == [("server", False)]


def test_nothing_is_configured() -> None:
    assert names(probe(BackendConfig())) == [("configuration", True)]

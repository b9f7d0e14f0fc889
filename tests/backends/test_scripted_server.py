"""The server that ships for tests: a whole conversation over HTTP, with faults on the way, as a separate process."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from backend_samples import TOOLS, result, user

from agent.backends.base import Message, Reply
from agent.backends.openai_api import OpenAIBackend
from agent.backends.protocols import with_protocol
from agent.backends.scripted_server import history_problems
from agent.config import BackendConfig
from agent.errors import ContextOverflow

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """---
author: hand-written
target: cpu
task: model.py
---
## Turn 1
Look.
```action bash timeout_s=5
ls
```
## Turn 2
```action write_file path=a.cpp
int x;
```
```action compile
```
## Turn 3
```action submit
all done
```
"""


@contextmanager
def running(tmp_path: Path, *flags: str) -> Iterator[str]:
    path = tmp_path / "turns.md"
    path.write_text(SCRIPT)
    command = [sys.executable, "-m", "agent.backends.scripted_server", "--script", str(path), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode == 0


def converse(base_url: str, *, turns: int, stream: bool = False, protocol: str = "auto") -> list[Reply]:
    """What a loop does, in brief: append the reply and one result per call, or a complaint."""
    values = {"model": "scripted", "base_url": base_url, "stream": stream, "tool_protocol": protocol}
    config = BackendConfig.model_validate(values)
    client = OpenAIBackend(config, sleep=lambda _: None)
    backend = with_protocol(client, config)
    history, replies = [user()], []
    try:
        for _ in range(turns):
            reply = backend.chat(history, TOOLS)
            replies.append(reply)
            history.append(Message(role="assistant", content=reply.text, tool_calls=reply.calls))
            history.extend(result(call.id) for call in reply.calls)
            if not reply.calls:
                history.append(user(reply.raw.get("format_error", "go on")))
    finally:
        client.close()
    return replies


EXPECTED = [
    [("bash", {"command": "ls", "timeout_s": 5})],
    [("write_file", {"path": "a.cpp", "content": "int x;\n"}), ("compile", {})],
    [("submit", {"summary": "all done"})],
]


def said(replies: list[Reply]) -> list[list[tuple[str, object]]]:
    return [[(call.name, json.loads(call.arguments)) for call in reply.calls] for reply in replies]


@pytest.mark.parametrize("protocol", ["auto", "native", "text", "json"])
def test_a_script_over_http(tmp_path: Path, protocol: str) -> None:
    with running(tmp_path) as url:
        assert said(converse(url, turns=3, protocol=protocol)) == EXPECTED
        assert said(converse(url, turns=3, stream=True, protocol=protocol)) == EXPECTED, "stateless"


def test_tools_that_are_refused_are_written_as_text_and_the_log_says_so(tmp_path: Path) -> None:
    with running(tmp_path, "--refuse-tools") as url:
        replies = converse(url, turns=4)
    assert said(replies[:3]) == EXPECTED and replies[3].text == "The script has no further turns."
    assert [reply.attempts for reply in replies] == [2, 1, 1, 1]
    assert {reply.raw["tool_protocol"] for reply in replies} == {"text"}
    assert "does not support tools" in replies[2].raw["tool_protocol_reason"]


def test_faults_on_the_way(tmp_path: Path) -> None:
    with running(tmp_path, "--faults", "429,malformed,length@3,drop@3") as url:
        replies = converse(url, turns=5)
    assert said([replies[0], replies[2], replies[4]]) == EXPECTED
    assert (replies[0].attempts, replies[4].attempts) == (2, 2)
    assert replies[1].calls[0].arguments == '{"command": "ls'
    assert (replies[3].finish_reason, replies[3].calls) == ("length", ())


def test_malformed_text_actions(tmp_path: Path) -> None:
    with running(tmp_path, "--refuse-tools", "--faults", "malformed") as url:
        replies = converse(url, turns=2)
    assert "cannot read" in replies[0].raw["format_error"]
    assert said(replies[1:]) == EXPECTED[:1]


def test_malformed_objects(tmp_path: Path) -> None:
    with running(tmp_path, "--faults", "malformed") as url:
        replies = converse(url, turns=2, protocol="json")
    assert "exactly one JSON object" in replies[0].raw["format_error"]
    assert said(replies[1:]) == EXPECTED[:1]


def test_overflow_ends_the_conversation(tmp_path: Path) -> None:
    with running(tmp_path, "--faults", "overflow@2") as url:
        converse(url, turns=1)
        with pytest.raises(ContextOverflow):
            converse(url, turns=2)


@pytest.mark.parametrize("flags", [("--faults", "earthquake"), ("--script", "/no/such/turns.md")])
def test_bad_flags(tmp_path: Path, flags: tuple[str, ...]) -> None:
    path = tmp_path / "turns.md"
    path.write_text(SCRIPT)
    command = [sys.executable, "-m", "agent.backends.scripted_server", "--script", str(path), *flags]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1


def call(id: str, arguments: str = "{}") -> dict[str, object]:
    return {"id": id, "type": "function", "function": {"name": "bash", "arguments": arguments}}


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([{"role": "assistant", "tool_calls": [call("a", "[")]}, {"role": "tool", "tool_call_id": "a"}], "JSON object"),
        ([{"role": "assistant", "tool_calls": [call("a")]}], "no result for"),
        ([{"role": "assistant", "tool_calls": [call("a")]}, {"role": "user", "content": "x"}], "before the results"),
        ([{"role": "tool", "tool_call_id": "a", "content": "x"}], "answers no open call"),
        ([{"role": "assistant", "content": ""}], "is empty"),
    ],
)
def test_the_server_is_strict_about_histories(messages: list[dict[str, object]], problem: str) -> None:
    assert any(problem in found for found in history_problems(messages))

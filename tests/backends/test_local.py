"""backend local: real server processes on loopback, started for a run and gone after it, whatever ends it.

The server is the scripted one, through backend.local.command; test_local_model.py has llama.cpp's own.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from backend_samples import TOOLS, result, user
from test_scripted_server import SCRIPT
from tiny_gguf import write_gguf

from agent.backends.base import Message, Reply
from agent.backends.local import MOST_RESTARTS, LocalBackend
from agent.backends.local_server import SERVERS
from agent.backends.registry import make_backend
from agent.backends.retry import ChatCancelled
from agent.config import BackendConfig
from agent.errors import AgentError, BackendError, ConfigError

ROOT = Path(__file__).resolve().parents[2]
MakeLocal = Callable[..., LocalBackend]


def scripted(tmp_path: Path) -> list[str]:
    path = tmp_path / "turns.md"
    path.write_text(SCRIPT)
    serve = [sys.executable, "-m", "agent.backends.scripted_server", "--script", str(path)]
    return [*serve, "--model", "local", "--port", "{port}"]


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeLocal]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    made: list[LocalBackend] = []

    def make(command: list[str] | None = None, **values: Any) -> LocalBackend:
        own = {"command": scripted(tmp_path) if command is None else command, **values.pop("local", {})}
        model = values.pop("model", None) or str(write_gguf(tmp_path / "m.gguf"))
        cancelled = values.pop("cancelled", None)
        config = BackendConfig.model_validate(
            {"name": "local", "model": model, "context_tokens": 2048, **values, "local": own}
        )
        backend = make_backend(config, cancelled=cancelled)
        assert isinstance(backend, LocalBackend)
        made.append(backend)
        return backend

    yield make
    for backend in made:
        backend.close()
    assert not SERVERS._running, "no server is left"


def server_of(backend: LocalBackend) -> psutil.Process:
    """The server itself, the keeper's child."""
    (child,) = psutil.Process(backend.start().pid).children()
    return child


def gone(process: psutil.Process, *, within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


def names(reply: Reply) -> list[str]:
    return [call.name for call in reply.calls]


def test_a_server_serves_and_is_gone_afterwards(local: MakeLocal) -> None:
    backend = local()
    first = backend.chat([user()], TOOLS)
    assert (names(first), first.model) == (["bash"], "m.gguf")
    said = Message(role="assistant", content=first.text, tool_calls=first.calls)
    assert names(backend.chat([user(), said, result(first.calls[0].id)], TOOLS)) == ["write_file", "compile"]
    about = backend.describe()
    assert (about["kind"], about["architecture"], about["tool_protocol"]) == ("local", "llama", "text")
    assert about["constrained_by"] == ["grammar"] and about["restarts"] == 0
    server = server_of(backend)
    assert backend.start().base_url.startswith("http://127.0.0.1:")
    backend.close()
    assert gone(server)
    with pytest.raises(ChatCancelled):
        backend.chat([user()], TOOLS)


def test_who_wants_the_same_model_shares_its_server(local: MakeLocal) -> None:
    one, two = local(), local()
    server = server_of(one)
    assert server_of(two) == server
    one.close()
    assert names(two.chat([user()], TOOLS)) == ["bash"]
    two.close()
    assert gone(server)


def test_a_server_that_dies_is_started_again_but_not_for_ever(local: MakeLocal) -> None:
    backend = local()
    for restarts in range(MOST_RESTARTS + 1):
        assert names(backend.chat([user()], TOOLS)) == ["bash"]
        assert backend.describe()["restarts"] == restarts
        server_of(backend).kill()
        time.sleep(0.3)
    with pytest.raises(BackendError, match="was ended by signal 9") as caught:
        backend.chat([user()], TOOLS)
    assert caught.value.kind == "server" and caught.value.exit_code == 3 and "--resume" in caught.value.hint


DYING = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def do_POST(self):
        print("boom", flush=True)
        os._exit(3)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_a_server_that_dies_while_it_is_asked_is_noticed_at_once(local: MakeLocal) -> None:
    backend = local([sys.executable, "-c", DYING, "{port}"])
    began = time.monotonic()
    with pytest.raises(BackendError, match=r"ended with 3; it said: boom, for the 3\. time"):
        backend.chat([user()], TOOLS)
    assert time.monotonic() - began < 30


DRIVER = """
import sys, time
from agent.backends.local import LocalBackend
from agent.config import BackendConfig
config = BackendConfig.model_validate_json(sys.argv[1])
print(LocalBackend(config).start().pid, flush=True)
time.sleep(120)
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_no_server_outlives_its_driver(local: MakeLocal, end: signal.Signals) -> None:
    config = local().config.model_dump_json()
    with subprocess.Popen([sys.executable, "-c", DRIVER, config], stdout=subprocess.PIPE, cwd=ROOT) as driver:
        assert driver.stdout is not None
        keeper = psutil.Process(int(driver.stdout.readline()))
        (server,) = keeper.children()
        driver.send_signal(end)
    assert gone(server) and gone(keeper)


def test_no_server_outlives_its_keeper(local: MakeLocal) -> None:
    backend = local()
    server = server_of(backend)
    os.kill(backend.start().pid, signal.SIGKILL)
    assert gone(server)


def test_a_port_that_is_in_use(local: MakeLocal) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} is in use") as caught:
            local(local={"port": port}).start()
    assert caught.value.exit_code == 2 and "backend.local.port" in caught.value.hint


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (
            "error loading model: unknown model architecture: 'zzzz'",
            ConfigError,
            "does not know the architecture 'zzzz'",
        ),
        ("ValueError: Failed to load model from file: m.gguf", ConfigError, "llama.cpp cannot load"),
        ("python: No module named llama_cpp", ConfigError, "cuda-agent[local-llm]"),
        ("ValueError: Failed to create llama_context", BackendError, "not enough memory"),
        ("[Errno 98] Address already in use", ConfigError, "is in use"),
        ("something else", BackendError, "ended with 1; it said: something else"),
    ],
)
def test_a_server_that_cannot_start_says_why_in_one_line(
    local: MakeLocal, said: str, kind: type[AgentError], words: str
) -> None:
    backend = local(["sh", "-c", 'echo "$1" >&2; exit 1', "sh", said.replace("{", "{{")])
    with pytest.raises(kind) as caught:
        backend.chat([user()], TOOLS)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_command_that_is_not_there_or_cannot_be_filled_in(local: MakeLocal) -> None:
    with pytest.raises(BackendError, match="cannot start /no/such/server"):
        local(["/no/such/server"]).start()
    with pytest.raises(ConfigError, match="cannot be filled in"):
        local(["server", "{modle}"]).start()


def test_a_server_that_never_answers(local: MakeLocal) -> None:
    with pytest.raises(BackendError, match=r"did not answer within 0\.5 s") as caught:
        local(["sleep", "60"], local={"start_timeout_s": 0.5}).start()
    assert caught.value.kind == "timeout"


def test_waiting_for_a_server_can_be_cancelled(local: MakeLocal) -> None:
    with pytest.raises(ChatCancelled):
        local(["sleep", "60"], cancelled=lambda: True).chat([user()], TOOLS)


@pytest.mark.parametrize(("tokens", "says"), [(512, "too short"), (8192, "was trained for 4096 tokens")])
def test_windows_that_no_run_can_have(local: MakeLocal, tokens: int, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        local(context_tokens=tokens)

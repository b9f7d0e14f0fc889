"""Which backend a configuration gives, what is said about it, and that importing the package stays light."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from backend_samples import TOOLS, user

from agent.backends import registry
from agent.backends.builtin.backend import BuiltinBackend
from agent.backends.openai_api import OpenAIBackend
from agent.backends.protocols import AutoProtocolBackend
from agent.backends.registry import make_backend, shipped_scripts
from agent.backends.replay import ReplayBackend
from agent.backends.text_protocol import TextProtocolBackend
from agent.config import BackendConfig
from agent.errors import BackendError, ConfigError

LOCAL = "http://127.0.0.1:8000/v1"
SCRIPT = (
    "---\nauthor: hand-written\ntarget: cpu\ntask: model.py\n---\n## Turn 1\nNothing to do.\n```action submit\n```\n"
)


class EchoBackend:
    """A user's own backend, loaded by its dotted path."""

    name = "echo"

    @classmethod
    def from_config(cls, config: BackendConfig) -> "EchoBackend":
        made = cls()
        made.name = f"echo:{config.model}"
        return made


class Unmakeable:
    """Has no from_config."""


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """examples/ of an installation, with one shipped script."""
    folder = tmp_path / "examples" / "gelu"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text("class Model: ...\n")
    (folder / "turns.md").write_text(SCRIPT)
    monkeypatch.setattr(registry, "asset", lambda name: tmp_path / name)
    return tmp_path / "examples"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("protocol", "kind"), [("auto", AutoProtocolBackend), ("text", TextProtocolBackend), ("native", OpenAIBackend)]
)
@pytest.mark.parametrize("name", ["auto", "openai"])
def test_a_configured_model_is_used(name: str, protocol: str, kind: type) -> None:
    config = BackendConfig.model_validate({"name": name, "model": "m", "base_url": LOCAL, "tool_protocol": protocol})
    backend = make_backend(config, task_sha256="0" * 64)
    assert type(backend) is kind and backend.name == "openai:m"
    assert getattr(backend, "notice", "") == ""


def test_a_base_url_without_a_model_is_asked_about() -> None:
    with pytest.raises(ConfigError, match="no model is set"):
        make_backend(BackendConfig(base_url=LOCAL))


def test_a_missing_key_is_infrastructure_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(BackendError) as caught:
        make_backend(BackendConfig(model="m", api_key_env="NO_SUCH_KEY"))
    assert (caught.value.kind, caught.value.exit_code) == ("no_key", 3)


def test_without_a_model_the_shipped_run_of_the_task_is_used(examples: Path) -> None:
    backend = make_backend(BackendConfig(), task_sha256=digest(examples / "gelu" / "model.py"))
    assert isinstance(backend, ReplayBackend) and backend.name == "replay:examples/gelu"
    assert "\n" not in backend.notice
    assert all(words in backend.notice for words in ("examples/gelu", "hand-written", "not an LLM"))
    assert backend.chat([user()], TOOLS).calls[0].name == "submit"


@pytest.mark.parametrize("sha256", [None, "0" * 64])
def test_otherwise_the_built_in_policy_acts_and_one_line_says_so(examples: Path, sha256: str | None) -> None:
    backend = make_backend(BackendConfig(), task_sha256=sha256)
    assert isinstance(backend, BuiltinBackend) and not backend.describe()["is_llm"]
    assert "\n" not in backend.notice
    assert all(words in backend.notice for words in ("no language model", "built-in policy", "not an LLM"))


def test_an_explicit_replay_of_a_task_without_a_script_says_how_to_configure_a_model(examples: Path) -> None:
    with pytest.raises(ConfigError, match="no language model is configured") as caught:
        make_backend(BackendConfig(name="replay"), task_sha256="0" * 64)
    lines = caught.value.hint.splitlines()
    assert len(lines) == 4 and caught.value.exit_code == 2
    assert "OPENAI_API_KEY" in lines[0] and "--base-url" in lines[0] and ".gguf" in lines[1] and "--script" in lines[2]
    assert "--backend builtin" in lines[3]


def test_a_recorded_run_ships_where_no_script_does(examples: Path) -> None:
    (examples / "gelu" / "turns.md").unlink()
    run = examples / "gelu" / "run"
    run.mkdir()
    (run / "events.jsonl").write_text("")
    assert dict(shipped_scripts()) == {digest(examples / "gelu" / "model.py"): run}
    (run / "task.json").write_text('{"sha256": "abc"}')
    assert dict(shipped_scripts()) == {"abc": run}


def test_an_installation_without_examples_ships_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Path:
        raise FileNotFoundError(name)

    monkeypatch.setattr(registry, "asset", missing)
    assert shipped_scripts() == {}


def test_a_configured_script_is_replayed_and_says_so(examples: Path) -> None:
    path = examples / "gelu" / "turns.md"
    backend = make_backend(BackendConfig(script=str(path)))
    assert isinstance(backend, ReplayBackend) and "not from an LLM" in backend.notice


@pytest.mark.parametrize("name", ["test_backend_registry.EchoBackend", "test_backend_registry:EchoBackend"])
def test_a_users_own_class(name: str) -> None:
    backend = make_backend(BackendConfig(name=name, model="m"))
    assert (type(backend).__name__, backend.name) == ("EchoBackend", "echo:m")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("opneai", "there is no backend 'opneai'"),
        ("no_such_module.Class", "cannot load the backend"),
        ("test_backend_registry.Missing", "cannot load the backend"),
        ("test_backend_registry.Unmakeable", "no from_config"),
    ],
)
def test_names_that_are_no_backend(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_backend(BackendConfig(name=name))


def test_importing_every_module_stays_light() -> None:
    folder = Path(registry.__file__).parent
    modules = [f"agent.backends.{path.stem}" for path in sorted(folder.glob("*.py")) if path.stem != "__init__"]
    code = f"import sys, {', '.join(modules)}; print({{'openai', 'jinja2', 'httpx', 'httpx2'}} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder.parents[1], check=True
    )
    assert done.stdout.strip() == "set()"

"""Makes the backend that the configuration names: auto, a provider or server, local, replay, or a class by its path."""

import hashlib
import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agent.assets import asset
from agent.backends.base import Backend
from agent.backends.builtin.backend import NOTICE, BuiltinBackend
from agent.backends.local import LocalBackend
from agent.backends.openai_api import OpenAIBackend
from agent.backends.presets import LOCAL, names_a_server, presets, resolve
from agent.backends.protocols import with_protocol
from agent.backends.replay import EVENTS_NAME, SCRIPT_NAME, ReplayBackend
from agent.backends.retry import CancelHook
from agent.config import BackendConfig
from agent.errors import ConfigError

HOW_TO_CONFIGURE: Final = """\
hosted: export OPENAI_API_KEY=…, then --model NAME (others: --backend NAME from `agent models`, or --base-url URL)
local:  --backend local --model PATH.gguf, or --backend ollama --model NAME (vllm, sglang, llamacpp, lmstudio)
replay: --script PATH (a run folder or a turns.md), or optimize a shipped example
none:   --backend builtin (a program that knows pointwise, reduction, norm, softmax and loss kernels)"""


def make_backend(
    config: BackendConfig, *, task_sha256: str | None = None, cancelled: CancelHook | None = None
) -> Backend:
    """Raises ConfigError for what cannot work, BackendError (kind no_key) where a key is needed and missing.

    auto: the configured script or model, else the shipped recorded run of this very task, else the built-in policy.
    `cancelled` ends waits. Every backend made here has `notice`: a line for the user that is not empty where the turns
    do not come from an LLM.
    """
    if names_a_server(config):
        return with_protocol(OpenAIBackend(config, cancelled=cancelled), config)
    config = resolve(config)
    name = config.name
    if name == LOCAL:
        return LocalBackend(config, cancelled=cancelled)
    if name == "builtin":
        return BuiltinBackend.from_config(config)
    if name == "auto" and not config.script and task_sha256 not in shipped_scripts():
        return BuiltinBackend(notice=NOTICE)
    if name == "auto":
        name = "replay" if config.script else "shipped"
    if name == "replay" and config.script:
        made = ReplayBackend.from_config(config)
        made.notice = f"the turns come from {made.path} ({made.describe()['author']}), not from an LLM"
        return made
    if name in ("replay", "shipped"):
        return _shipped(task_sha256)
    return _custom(name, config)


def _shipped(task_sha256: str | None) -> Backend:
    path = shipped_scripts().get(task_sha256 or "")
    if path is None:
        raise ConfigError(
            "no language model is configured, and no recorded run of this task ships", hint=HOW_TO_CONFIGURE
        )
    backend = ReplayBackend(path)
    about = backend.describe()["author"]
    backend.notice = (
        f"no language model is configured: replaying {backend.name.removeprefix('replay:')} "
        f"({about} turns, not an LLM); every action runs live"
    )
    return backend


def shipped_scripts() -> Mapping[str, Path]:
    """sha256 of a task's model.py -> what ships for it below examples/: turns.md, else a recorded run/ folder."""
    try:
        examples = asset("examples")
    except FileNotFoundError:
        return {}
    found: dict[str, Path] = {}
    for folder in sorted(path for path in examples.iterdir() if (path / "model.py").is_file()):
        digest = hashlib.sha256((folder / "model.py").read_bytes()).hexdigest()
        if (folder / SCRIPT_NAME).is_file():
            found.setdefault(digest, folder / SCRIPT_NAME)
        elif (folder / "run" / EVENTS_NAME).is_file():
            found.setdefault(_recorded_task(folder / "run") or digest, folder / "run")
    return found


def _recorded_task(run: Path) -> str | None:
    try:
        value = json.loads((run / "task.json").read_text(encoding="utf-8")).get("sha256")
    except (OSError, ValueError, AttributeError):
        return None
    return value if isinstance(value, str) else None


def _custom(name: str, config: BackendConfig) -> Backend:
    """`package.module.Class` or `package.module:Class`, made by its from_config(config)."""
    module_name, _, class_name = name.replace(":", ".").rpartition(".")
    if not module_name:
        raise ConfigError(
            f"there is no backend {name!r}",
            hint=f"auto, builtin, local, replay, one of {', '.join(presets())}, or a dotted path to a class",
        )
    try:
        kind: Any = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"cannot load the backend {name}: {error}") from error
    if not callable(getattr(kind, "from_config", None)):
        raise ConfigError(f"backend {name} has no from_config(config) class method")
    backend: Backend = kind.from_config(config)
    return backend

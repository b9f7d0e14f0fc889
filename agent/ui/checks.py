"""The checks of `agent doctor` that need no sandbox: installation, target, storage, which sandbox, the model."""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from agent.assets import NAMES, asset
from agent.config import BackendConfig, Config, api_key, cache_home, expanded, key_variable
from agent.errors import AgentError
from agent.judging.target import resolve_target

Status = Literal["ok", "warn", "fail", "skip"]
_LITTLE_BYTES: Final = 5 << 30
_HOST: Final = "this machine"


@dataclass(frozen=True)
class Check:
    """One line of the table. `needed`: `agent optimize`, as configured, depends on it. `advice` says what to do."""

    group: str
    name: str
    status: Status
    detail: str = ""
    advice: str = ""
    needed: bool = False
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def check_python() -> Check:
    version = f"{platform.python_version()} ({sys.executable})"
    try:
        for name in NAMES:
            asset(name)
    except FileNotFoundError as error:
        return Check(_HOST, "installation", "fail", str(error), "reinstall cuda-agent", needed=True)
    return Check(_HOST, "python", "ok", version)


def check_target(config: Config) -> Check:
    target = resolve_target(config.judge)
    asked = "asked for" if config.judge.target != "auto" else "auto"
    return Check(_HOST, "target", "ok", f"{target} ({asked}), {os.cpu_count()} processors")


def check_storage(config: Config) -> Iterator[Check]:
    """The runs folder and the cache: there or makeable, writable, with room."""
    yield _folder("runs folder", expanded(Path(config.run.output)).absolute(), "choose another one with -o")
    yield _folder("cache", cache_home(), "set CUDA_AGENT_CACHE")


def _folder(name: str, path: Path, advice: str) -> Check:
    existing = next(p for p in (path, *path.parents) if p.exists())
    try:
        with tempfile.TemporaryFile(dir=existing) as probe:
            probe.write(b"x" * 4096)
            probe.flush()
    except OSError as error:
        return Check(_HOST, name, "fail", f"cannot write in {existing}: {error.strerror}", advice, needed=True)
    free = shutil.disk_usage(existing).free
    room = f"{path}, {free / 1e9:.0f} GB free"
    if free < _LITTLE_BYTES:
        return Check(_HOST, name, "warn", room, f"a run may need some GB: free some, or {advice}")
    return Check(_HOST, name, "ok", room)


def check_sandbox_choice(config: Config) -> tuple[Check, str]:
    """Which sandbox `agent optimize` would take; the kind is empty where it would take none."""
    from agent.sandbox.open import choose_kind

    asked = f"--sandbox {config.sandbox.kind}"
    try:
        kind = choose_kind(config.sandbox, target=resolve_target(config.judge))
    except AgentError as error:
        return Check("choice", asked, "fail", error.message, error.hint, needed=True), ""
    if kind == "none":
        advice = "model-written code would run unconfined on this machine; docker or bubblewrap are the safe ways"
        return Check("choice", asked, "warn", "no sandbox at all", advice), kind
    return Check("choice", asked, "ok", f"takes {kind}"), kind


def check_model(config: Config) -> Iterator[Check]:
    """The language model's side: key, server, model name and a round trip with a tool call, where one is configured."""
    from agent.backends.probe import probe
    from agent.backends.registry import HOW_TO_CONFIGURE, shipped_scripts

    group, backend = "language model", config.backend
    if not _configured(backend):
        count = len(shipped_scripts())
        detail = f"none is configured: the built-in policy acts (a program), {count} shipped examples are replayed"
        yield Check(group, "backend", "warn", detail, HOW_TO_CONFIGURE)
        return
    for name, ok, detail in probe(backend):
        yield Check(
            group, name, "ok" if ok else "fail", detail, "" if ok else _model_advice(name, backend), needed=True
        )


def _configured(backend: BackendConfig) -> bool:
    return backend.name != "auto" or bool(backend.model or backend.base_url or backend.script)


def _model_advice(name: str, backend: BackendConfig) -> str:
    from agent.backends.presets import resolve

    match name:
        case "key":
            state = "is not set" if api_key(resolve(backend)) is None else "is set, but the server refuses it"
            return f"{key_variable(resolve(backend))} {state}; export it, or name another variable with --api-key-env"
        case "server":
            return f"is {backend.base_url or 'the provider'} the right address, and is the server running?"
        case "model":
            return "choose one with --model"
        case "tool call":
            return "try --tool-protocol text: the model then writes its actions as fenced blocks"
        case _:
            return "see agent optimize --help, options --backend, --model, --base-url, --script"

"""The configuration: frozen models, layered as defaults < agent.toml < --set a.b=c < flags.

The only module that reads the environment.

Every key has a default, so an agent.toml holds only what differs. Unknown keys and wrong types are ConfigErrors that
name the key and the nearest known one. Secrets never enter these models: `backend.api_key_env` names a variable.
"""

import difflib
import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.errors import ConfigError


class _Section(BaseModel):
    # Infinity and NaN are no JSON: neither config.json nor a request may hold them. 0 means no limit where one can go.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class LocalConfig(_Section):
    """backend local: the llama.cpp server that is started for a GGUF file."""

    command: list[str] = []
    """Another server than llama-cpp-python's: a command line with {model}, {port}, {context} and {threads} in it."""
    port: int = Field(0, ge=0, le=65535)
    """0: a free one."""
    threads: int = Field(0, ge=0)
    """0: one per core."""
    gpu_layers: int = Field(0, ge=-1)
    """Layers on the GPU; -1: all. Only for a llama.cpp that was built for one."""
    start_timeout_s: float = Field(300.0, gt=0)


class BackendConfig(_Section):
    """Which language model, and how it is asked."""

    name: str = "auto"
    """auto (a configured model, else a shipped recorded run, else builtin), builtin, local, replay, a name that
    `agent models` lists, or a dotted path to a class."""
    model: str = ""
    """Name at the server; for local the path of a GGUF file."""
    base_url: str = ""
    """Root of an OpenAI-compatible API, for instance http://127.0.0.1:8000/v1."""
    api_key_env: str = ""
    """Name of the variable that holds the key; empty: the provider's own, else OPENAI_API_KEY. A key is not asked for
    when base_url is a loopback address."""
    script: str = ""
    """replay: a run folder or a hand-written script of turns."""
    tool_protocol: Literal["auto", "native", "text", "json"] = "auto"
    """native calls; text: fenced blocks; json: one JSON object per reply. auto: the provider's own, else native until
    the server refuses tools, then text; text where the context is short."""
    constrain: bool = True
    """Let the server hold a model to the protocol's grammar or schema where it can (text: llama.cpp; json: most)."""
    context_tokens: int = Field(0, ge=0)
    """The model's window. What does not fit is condensed; a short one gets short instructions. 0: unknown, then a full
    window ends the episode."""
    reasoning: Literal["auto", "drop", "with_calls", "keep"] = "auto"
    """Which replies' reasoning is sent back with the history. auto: what the provider wants."""
    local: LocalConfig = LocalConfig()
    stream: bool = False
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    max_output_tokens: int | None = None
    extra_body: dict[str, Any] = {}
    """Passed through to the server as it is."""
    record_token_ids: bool = False
    """Ask the server for token ids and logprobs (vLLM, SGLang); dropped for servers that refuse the field."""
    timeout_s: float = Field(600.0, gt=0)
    max_attempts: int = Field(8, ge=1)
    """Requests per turn, retries included."""
    max_wait_s: float = Field(300.0, ge=0)
    """Longest total wait for retries within one turn."""
    price_in_per_mtok: float | None = None
    price_out_per_mtok: float | None = None
    price_cached_per_mtok: float | None = None


class SandboxConfig(_Section):
    """Where the model's commands run."""

    kind: Literal["auto", "docker", "bubblewrap", "none"] = "auto"
    image: str = ""
    """Docker image; empty = the one that `agent image build` made for the target."""
    python: str = ""
    """bubblewrap, none: interpreter that has torch; empty = the one that runs `agent`."""
    image_python: str = ""
    """docker: interpreter in the image that has torch; empty = the one that the image names."""
    gpu: Literal["auto", "toolkit", "cdi", "nodes"] = "auto"
    """docker, target cuda: NVIDIA toolkit, CDI device, or device nodes with the driver's files read-only."""
    mounts: tuple[Annotated[str, Field(pattern=r"^/[^:]*(:/[^:]+)?$")], ...] = ()
    """Folders or files of this machine that are shown read-only: SOURCE or SOURCE:TARGET."""
    env: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*=")], ...] = ()
    """NAME=VALUE for every command in a sandbox."""
    memory_gb: float = Field(8.0, gt=0)
    cpus: float | None = Field(None, gt=0)
    pids: int = Field(512, ge=16)
    shm_gb: float = Field(2.0, gt=0)
    tmp_gb: float = Field(8.0, gt=0)
    standby: bool = True
    """While the model thinks, a tool waits in a sandbox of its own, under the same limits, with torch and baselines
    ready, where the machine has 3 GB of memory to spare. Kind none has none."""
    i_understand: bool = False
    """Consent for kind none: model-written code runs unconfined on this machine."""


class LimitsConfig(_Section):
    """Budgets of one episode; 0 means no limit."""

    turns: int = Field(150, ge=0)
    time_s: float = Field(3600.0, ge=0)
    tokens: int = Field(0, ge=0)
    cost_usd: float = Field(0.0, ge=0)
    command_timeout_s: float = Field(180.0, gt=0)
    tool_timeout_s: float = Field(600.0, gt=0)
    """compile, verify, profile."""
    judge_timeout_s: float = Field(1200.0, gt=0)
    judge_reserve_s: float = Field(240.0, ge=0)
    """Kept back from time_s for the final judgement."""
    format_errors: int = Field(3, ge=1)
    repeats: int = Field(4, ge=2)
    """Identical action and observation in a row, or circles of up to four of them."""
    refusals: int = Field(2, ge=1)
    """Replies in a row that decline the task; before the last one the model is told what it is about."""
    observation_chars: int = Field(10_000, ge=500)
    log_mb: int = Field(256, ge=1)
    """Largest complete log of one command on disk."""


class JudgeConfig(_Section):
    """What is judged, and how."""

    target: Literal["auto", "cpu", "cuda"] = "auto"
    policy: Literal["strict", "open"] = "strict"
    precision: Literal["strict", "tf32", "bf16"] = "strict"
    reward: Literal["interval", "paper"] = "interval"
    """Whether "more than 5 % faster" is decided on the interval's lower bound or on the point estimate."""
    memcheck: bool = True
    """Target cuda: whether compute-sanitizer looks at what would be accepted."""


class RunConfig(_Section):
    """The run itself."""

    output: str = "runs"
    samples: int = Field(1, ge=1)
    confirm: bool = False


class SearchConfig(_Section):
    """How several tries at one task (run.samples) hang together."""

    kind: Literal["none", "best-of", "beam"] = "none"
    """none: each by itself; best-of: the best is judged again; beam: in rounds that start from the best so far."""
    workers: int = Field(0, ge=0)
    """Tries side by side; 0: one after the other without a search, else as many as half the cores, two at least."""
    width: int = Field(2, ge=1)
    """beam: how many of the best submissions a round starts from."""
    rounds: int = Field(3, ge=1)
    """beam: rounds that the tries are spread over."""


class Config(_Section):
    """The whole configuration; `config.json` of a run folder is exactly this."""

    backend: BackendConfig = BackendConfig()
    sandbox: SandboxConfig = SandboxConfig()
    limits: LimitsConfig = LimitsConfig()
    judge: JudgeConfig = JudgeConfig()
    run: RunConfig = RunConfig()
    search: SearchConfig = SearchConfig()


def load_config(
    *,
    files: Sequence[Path] = (),
    settings: Sequence[str] = (),
    flags: Mapping[str, Any] | None = None,
) -> Config:
    """Layer files (TOML, or a run's config.json), `a.b=c` settings, flags (dotted key -> value, None: not given).

    A file's [models."NAME"] is laid over [backend] where NAME is the model that is chosen in the end, below settings
    and flags; config.json holds the result, not the table.
    """
    merged: dict[str, Any] = {}
    for path in files:
        _merge(merged, _read_file(path))
    models = _model_tables(merged.pop("models", {}))
    given = [_parse_setting(setting) for setting in settings]
    given += [(key, value) for key, value in (flags or {}).items() if value is not None]
    backend = merged.get("backend")
    written = backend.get("model") if isinstance(backend, Mapping) else None
    chosen = dict(given).get("backend.model", written)
    if own := models.get(str(chosen)):
        _merge(merged, {"backend": own})
    for key, value in given:
        _put(merged, key, value)
    return _validate(merged)


def _model_tables(tables: Any) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(tables, Mapping) or not all(isinstance(table, Mapping) for table in tables.values()):
        raise ConfigError("models must hold one table per model", hint='[models."NAME"] with settings of [backend]')
    for name, table in tables.items():
        for key in table:
            if key in ("name", "model"):
                raise ConfigError(f'[models."{name}"] cannot set {key}', hint="it is what chooses the table")
            _require_known(f"backend.{key}", nested=True)
    return tables


def default_files(cwd: Path) -> tuple[Path, ...]:
    """agent.toml of the user's configuration folder, then the one in `cwd`; only those that exist."""
    home = Path(environ().get("XDG_CONFIG_HOME") or expanded(Path("~/.config")))
    return tuple(p for p in (home / "cuda-agent" / "agent.toml", cwd / "agent.toml") if p.is_file())


def environ() -> Mapping[str, str]:
    """The process' environment, read here only."""
    return os.environ


def without_usage_reports() -> None:
    """Ray reports its use to its makers unless told not to; who wants that sets RAY_USAGE_STATS_ENABLED=1."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


def api_key(config: BackendConfig) -> str | None:
    return environ().get(key_variable(config)) or None


def key_variable(config: BackendConfig) -> str:
    return config.api_key_env or "OPENAI_API_KEY"


def cache_home() -> Path:
    """Folder for what can be rebuilt (precompiled headers, compiled baselines): $CUDA_AGENT_CACHE or the XDG cache."""
    env = environ()
    if chosen := env.get("CUDA_AGENT_CACHE"):
        return Path(chosen)
    return Path(env.get("XDG_CACHE_HOME") or expanded(Path("~/.cache"))) / "cuda-agent"


def expanded(path: Path) -> Path:
    """`path` with `~` or `~name` replaced. Raises ConfigError where there is no such home."""
    try:
        return path.expanduser()
    except RuntimeError:
        hint = "set HOME, or write the path in full"
        raise ConfigError(f"there is no home directory for {path}", hint=hint) from None


def known_keys(model: type[BaseModel] = Config, prefix: str = "") -> tuple[str, ...]:
    """All dotted keys, in order."""
    keys: list[str] = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            keys.extend(known_keys(kind, f"{prefix}{name}."))
        else:
            keys.append(prefix + name)
    return tuple(keys)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    try:
        data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, brackets without end
        raise ConfigError(f"{path} is not valid {path.suffix[1:].upper() or 'TOML'}: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} does not hold a table of settings")
    return data


def _parse_setting(setting: str) -> tuple[str, Any]:
    key, equals, text = setting.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        hint = "for instance --set limits.turns=50"
        raise ConfigError(f"--set {setting!r} is not of the form section.key=value", hint=hint)
    try:
        return key, json.loads(text)
    except json.JSONDecodeError:
        return key, text


def _put(tree: dict[str, Any], key: str, value: Any) -> None:
    _require_known(key)
    *sections, last = key.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
    tree[last] = value


def _require_known(key: str, *, nested: bool = False) -> None:
    """`nested`: a section counts too, because its keys are checked with the whole."""
    keys = known_keys()
    if key in keys or any(key.startswith(k + ".") for k in keys if k == "backend.extra_body"):
        return
    if nested and any(k.startswith(key + ".") for k in keys):
        return
    near = difflib.get_close_matches(key, keys, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else "agent optimize --help lists the sections"
    raise ConfigError(f"unknown setting {key}", hint=hint)


def _merge(base: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        else:
            base[key] = dict(value) if isinstance(value, Mapping) else value


def _validate(tree: dict[str, Any]) -> Config:
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            _require_known(key)
        raise ConfigError(f"setting {key}: {first['msg']}") from error

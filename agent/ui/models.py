"""`agent models` and `agent models test`: tables for a person, one JSON object for a program."""

import json as json_format
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent.backends.openai_api import OpenAIBackend
from agent.backends.presets import is_gguf, names_a_server, presets, resolve
from agent.backends.prices import Price, listed_price, prices_as_of
from agent.backends.probe import Examination, examine
from agent.config import BackendConfig, api_key, default_files, load_config
from agent.errors import EXIT_INFRASTRUCTURE, ConfigError
from agent.ui.console import make_console, safe
from agent.ui.quantities import show_count, show_duration
from agent.ui.tables import print_columns


def run_models(*, files: Sequence[Path], settings: Sequence[str], flags: Mapping[str, Any], json: bool) -> int:
    """The presets, or where a server is named what it serves. Raises ConfigError, BackendError."""
    config = _config(files, settings, flags)
    if flags.get("backend.name") or config.base_url:
        return _list_served(config, json=json)
    rows = [_preset_row(name) for name in presets()]
    if json:
        _print_json({"providers": rows})
        return 0
    cells = [[row["name"], row["key_env"], row["key"], row["base_url"]] for row in rows]
    cells.append(["local", "-", "none needed", "a GGUF file: --backend local --model PATH.gguf"])
    print_columns(make_console(), ("name", "key variable", "key", "base URL"), cells, right="llll")
    sys.stdout.write("\nagent models --backend NAME lists a server's models, agent models test NAME/MODEL tries one\n")
    return 0


def _preset_row(name: str) -> dict[str, Any]:
    preset = presets()[name]
    found = api_key(BackendConfig(api_key_env=preset.key_env)) is not None
    key = "set" if found else "none needed" if preset.loopback else "not set"
    return {
        "name": name,
        "key_env": preset.key_env,
        "key": key,
        "base_url": preset.base_url,
        "tool_protocol": preset.tool_protocol,
        "remark": preset.remark,
    }


@dataclass(frozen=True)
class Served:
    """One model of a server. Prices are USD per million tokens, None where they are not in the table."""

    name: str
    context_tokens: int
    price_in: float | None
    price_out: float | None


def _list_served(config: BackendConfig, *, json: bool) -> int:
    if not names_a_server(resolve(config)):
        raise ConfigError(
            f"backend {config.name} is no server that lists models", hint="agent models shows those that are"
        )
    backend = OpenAIBackend(resolve(config.model_copy(update={"model": config.model or "any"})))
    try:
        served = [_served(name, window, backend) for name, window in sorted(backend.served().items())]
    finally:
        backend.close()
    if json:
        about = {"base_url": backend.public_url, "prices_as_of": prices_as_of()}
        _print_json({**about, "models": [asdict(model) for model in served]})
        return 0
    cells = [[safe(m.name), show_count(m.context_tokens) if m.context_tokens else "?", _money(m)] for m in served]
    print_columns(make_console(), ("model", "context", f"USD per Mtok in/out ({prices_as_of()})"), cells, right="lrl")
    return 0


def _served(name: str, window: int, backend: OpenAIBackend) -> Served:
    price: Price | None = listed_price(name, host=backend.host)
    return Served(name, window, price.prompt if price else None, price.completion if price else None)


def _money(model: Served) -> str:
    return "?" if model.price_in is None else f"{model.price_in:g} / {model.price_out:g}"


def run_test(
    name: str | None, *, files: Sequence[Path], settings: Sequence[str], flags: Mapping[str, Any], json: bool
) -> int:
    """0 where the round trip worked, 3 where it did not. Raises ConfigError where no model is named."""
    config = _config(files, settings, {**flags, **_chosen(name, flags)})
    if not config.model:
        raise ConfigError("no model is named", hint="agent models test NAME, or backend.model in agent.toml")
    found = examine(config)
    if json:
        _print_json(_as_object(config, found))
    else:
        _print_examination(found)
    return 0 if found.ok else EXIT_INFRASTRUCTURE


def _chosen(name: str | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """PROVIDER/MODEL names both, unless a backend is given beside it: routers have names with slashes of their own."""
    if name is None:
        return {}
    provider, slash, model = name.partition("/")
    named = flags.get("backend.name") or flags.get("backend.base_url")
    if slash and not named and provider in presets() and not is_gguf(name):
        return {"backend.name": provider, "backend.model": model}
    return {"backend.model": name}


def _config(files: Sequence[Path], settings: Sequence[str], flags: Mapping[str, Any]) -> BackendConfig:
    return load_config(files=(*default_files(Path.cwd()), *files), settings=settings, flags=flags).backend


def _as_object(config: BackendConfig, found: Examination) -> dict[str, Any]:
    resolved, trip = resolve(config), found.trip
    return {
        "ok": found.ok,
        "backend": resolved.name,
        "model": resolved.model,
        "context_tokens": resolved.context_tokens,
        "checks": [{"name": name, "ok": ok, "detail": detail} for name, ok, detail in found.checks],
        "round_trip": None
        if trip is None
        else {
            "protocol": trip.protocol,
            "seconds": round(trip.seconds, 3),
            "prompt_tokens": trip.prompt_tokens,
            "completion_tokens": trip.completion_tokens,
            "cost_usd": trip.cost_usd,
            "reasoning": any(reply.reasoning for reply in trip.replies),
            "constrained_by": list(found.about.get("constrained_by", ())),
            "refused_fields": list(found.about.get("refused_fields", ())),
        },
    }


def _print_examination(found: Examination) -> None:
    for name, ok, detail in found.checks:
        sys.stdout.write(f"{'ok ' if ok else 'NO '} {name:<14} {safe(detail)}\n")
    trip = found.trip
    if trip is not None and not trip.problem:
        cost = "unknown" if trip.cost_usd is None else f"{trip.cost_usd:.6f} USD"
        counts = f"{trip.prompt_tokens} tokens in, {trip.completion_tokens} out"
        sys.stdout.write(f"    {'round trip':<14} {show_duration(trip.seconds)}, {counts}, cost {cost}\n")
    for label in ("constrained_by", "refused_fields"):
        if names := found.about.get(label):
            sys.stdout.write(f"    {label.replace('_', ' '):<14} {', '.join(names)}\n")


def _print_json(data: Mapping[str, Any]) -> None:
    sys.stdout.write(json_format.dumps({"schema_version": 1, **data}) + "\n")

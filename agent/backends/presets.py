"""What is known about providers and servers, as data: presets.json, read by name or by the host of a base URL.

Covers base URL, key variable and quirks that change what is sent. Does not cover which models there are: the servers
say that themselves. What a user sets always wins.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, TypeAdapter

from agent.config import BackendConfig

SHORT_TOKENS: Final = 12_000
"""Below this many tokens of context the opening is short, and actions are written as text unless told otherwise."""
LOCAL: Final = "local"
LARGEST_REPLY: Final = 4096
SMALLEST_REPLY: Final = 256


class Preset(BaseModel):
    """One provider or server. The defaults are what an OpenAI-compatible server of no special kind gets."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_url: str = ""
    key_env: str = "OPENAI_API_KEY"
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    reasoning: Literal["drop", "with_calls", "keep"] = "drop"
    """Which replies' reasoning the server wants back: of none, of those with calls, of all."""
    reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    cache_marks: tuple[str, ...] = ()
    """Beginnings of the models' names whose prompt cache needs marks on the messages."""
    call_ids: Literal["any", "nine_letters"] = "any"
    tool_protocol: Literal["auto", "native", "text", "json"] = "auto"
    schema_form: Literal["", "json_schema", "json_object", "json_object_schema"] = ""
    """How response_format says that a reply must be JSON; json_object without the schema."""
    grammar: bool = False
    """Takes a GBNF grammar in the field `grammar`."""
    context_tokens: int = 0
    extra_body: dict[str, Any] = {}
    remark: str = ""

    @property
    def loopback(self) -> bool:
        return (urlsplit(self.base_url).hostname or "").startswith("127.")


_UNKNOWN: Final = Preset(schema_form="json_schema")
_LOCAL: Final = Preset(schema_form="json_object_schema", grammar=True, tool_protocol="text", context_tokens=8192)


@cache
def presets() -> Mapping[str, Preset]:
    """By name, in the order of the file."""
    table = json.loads(Path(__file__).with_name("presets.json").read_text(encoding="utf-8"))["presets"]
    return TypeAdapter(dict[str, Preset]).validate_python(table)


def preset_for(config: BackendConfig) -> Preset:
    """The preset that `name` names, else that of the base URL's host (and port, on loopback), else a plain server."""
    if config.name == LOCAL:
        return _LOCAL
    if config.name in presets() and not (config.name == "openai" and config.base_url):
        return presets()[config.name]
    return _preset_at(config.base_url) if config.base_url else presets()["openai"]


def _preset_at(base_url: str) -> Preset:
    """A server on loopback is recognised by its usual port; its key stays the common variable's."""
    try:
        asked = _address(base_url)
    except ValueError:
        return _UNKNOWN
    preset = next((preset for preset in presets().values() if _address(preset.base_url) == asked), _UNKNOWN)
    return preset.model_copy(update={"key_env": _UNKNOWN.key_env}) if preset.loopback else preset


def _address(url: str) -> tuple[str | None, int | None]:
    parts = urlsplit(url)
    return "127.0.0.1" if parts.hostname == "localhost" else parts.hostname, parts.port


def names_a_server(config: BackendConfig) -> bool:
    """Whether an OpenAI-compatible server is asked: by a preset's name, or because auto was given a model or URL."""
    if config.name == "auto":
        return not config.script and bool(config.model or config.base_url) and not is_gguf(config.model)
    return config.name in presets()


def is_gguf(model: str) -> bool:
    return model.lower().endswith(".gguf")


def resolve(config: BackendConfig) -> BackendConfig:
    """The configuration with what its preset knows filled in where the user set nothing. Safe to repeat."""
    if config.name == "auto" and is_gguf(config.model) and not config.base_url and not config.script:
        config = config.model_copy(update={"name": LOCAL})
    if config.name != LOCAL and not names_a_server(config):
        return config
    preset = preset_for(config)
    context = config.context_tokens or preset.context_tokens
    short = 0 < context < SHORT_TOKENS
    protocol = config.tool_protocol if config.tool_protocol != "auto" else preset.tool_protocol
    return config.model_copy(
        update={
            "base_url": config.base_url or preset.base_url,
            "api_key_env": config.api_key_env or preset.key_env,
            "context_tokens": context,
            "tool_protocol": "text" if protocol == "auto" and short else protocol,
            "reasoning": preset.reasoning if config.reasoning == "auto" else config.reasoning,
            "extra_body": {**preset.extra_body, **config.extra_body},
            "max_output_tokens": config.max_output_tokens or (reply_tokens(context) if short else None),
        }
    )


def reply_tokens(context: int) -> int:
    """How much of a short window is kept for the reply."""
    return min(LARGEST_REPLY, max(SMALLEST_REPLY, context * 2 // 5))

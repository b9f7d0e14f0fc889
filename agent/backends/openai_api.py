"""Any OpenAI-compatible chat-completions server (hosted, vLLM, SGLang, Ollama, llama.cpp), through the openai library.

Covers: bounded retries, context overflow, servers that refuse single fields, streaming, token ids, cost. Does not
cover: the Responses API, several choices. Nothing here prints or records a key.
"""

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from agent.backends.base import Message, Reply, ToolSchema
from agent.backends.failures import (
    is_overflow,
    not_json_failure,
    refused_fields,
    refuses_field,
    refuses_tools,
    status_failure,
)
from agent.backends.presets import preset_for, presets, resolve
from agent.backends.prices import price_for
from agent.backends.replies import parse_reply
from agent.backends.retry import CancelHook, Failure, RequestFailed, Retrying
from agent.backends.sanitize import clean_json, sanitize_history
from agent.backends.stream import assemble
from agent.backends.wire import mark_for_cache, wire_message, wire_tool
from agent.config import BackendConfig, api_key, key_variable
from agent.errors import BackendError, ConfigError, ContextOverflow

CONNECT_TIMEOUT_S: Final = 10.0
_FEW_ATTEMPTS: Final = 3
_OPTIONAL: Final = ("return_token_ids", "logprobs", "stream_options", "response_format", "grammar")
_WINDOWS: Final = ("max_model_len", "context_length", "context_window", "max_context_length", "n_ctx")
_LIMIT_FIELDS: Final = ("max_completion_tokens", "max_tokens")


class ToolsRefused(BackendError):
    """The server or model takes no tools; the fenced-text protocol may still work."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="bad_request", hint="set backend.tool_protocol=text")


class OpenAIBackend:
    """One model behind one base URL. `cancelled` may be set at any time: polled while waiting, it ends the wait."""

    def __init__(
        self,
        config: BackendConfig,
        *,
        sleep: Callable[[float], None] | None = None,
        cancelled: CancelHook | None = None,
    ) -> None:
        self.preset = preset_for(config)
        self.provider = config.name if config.name in presets() else "openai"
        settled = bool(config.context_tokens) or config.tool_protocol != "auto"
        self.notice = "" if settled else self.preset.remark
        self.config = config = resolve(config)
        self.base_url = check_base_url(config.base_url or self.preset.base_url)
        if not config.model:
            raise ConfigError("no model is set", hint="--model NAME, or backend.model in agent.toml")
        self._key = _require_key(config, self.base_url)
        self._sleep = sleep
        self.cancelled = cancelled
        self._price = price_for(config, base_url=self.base_url)
        self._client: Any = None
        self._answered = False
        self._dropped: list[str] = []
        self._constraint: dict[str, Any] = {}
        self._limit_field: str = self.preset.limit_field

    @classmethod
    def from_config(cls, config: BackendConfig) -> "OpenAIBackend":
        return cls(config)

    @property
    def name(self) -> str:
        return f"{self.provider}:{self.config.model}"

    def describe(self) -> dict[str, Any]:
        """Model, base URL, sampling, and which optional fields the server refused; no key."""
        keys = (
            "model",
            "temperature",
            "top_p",
            "seed",
            "max_output_tokens",
            "stream",
            "record_token_ids",
            "extra_body",
            "context_tokens",
            "reasoning",
        )
        sampling = {key: getattr(self.config, key) for key in keys}
        about = {"kind": "openai", "provider": self.provider, "base_url": self.public_url, **sampling}
        return {**about, "constrained_by": sorted(self._constraint), "refused_fields": list(self._dropped)}

    def constrain(self, fields: Mapping[str, Any]) -> None:
        """Send these fields while the server takes them: a response_format or grammar that replies must follow."""
        self._constraint = dict(fields)

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or ""

    @property
    def public_url(self) -> str:
        """The base URL without a user and password."""
        return without_password(self.base_url)

    def chat(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> Reply:
        """One turn. Raises BackendError, ContextOverflow, ToolsRefused; ChatCancelled when `cancelled` says so."""
        history = sanitize_history(messages)
        schemas = [wire_tool(tool) for tool in tools]
        retrying = Retrying(self.config.max_attempts, self.config.max_wait_s, self.cancelled, self._sleep)
        answer = retrying.run(lambda: self._request(history, schemas))
        self._answered = True
        return answer.value.model_copy(
            update={"attempts": answer.attempts, "latency_s": answer.latency_s, "waited_s": answer.waited_s}
        )

    def models(self) -> tuple[str, ...]:
        """Names that the server lists at /models; empty where it lists none. Raises BackendError when unreachable."""
        return tuple(self.served())

    def served(self) -> dict[str, int]:
        """As models, with each model's window in tokens, 0 where the server does not tell."""
        try:
            with self._errors():
                client = self._connect().with_options(timeout=min(30.0, self.config.timeout_s))
                with client.models.with_streaming_response.list() as response:
                    page = _decode(response.read(), response.headers.get("content-type", ""))
        except RequestFailed as error:
            failure = error.failure
            raise BackendError(failure.message, kind=failure.kind, hint=failure.hint) from None
        entries = page.get("data") if isinstance(page, dict) else None
        entries = entries if isinstance(entries, list) else ()
        return {str(entry["id"]): window_of(entry) for entry in entries if isinstance(entry, dict) and entry.get("id")}

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _request(self, history: Sequence[Message], tools: list[dict[str, Any]]) -> Reply:
        while True:
            try:
                return parse_reply(self._exchange(self._wire(history), tools), price=self._price)
            except _FieldRefused as error:
                self._adapt(error.fields)

    def _wire(self, history: Sequence[Message]) -> list[dict[str, Any]]:
        preset = self.preset
        reasoning = "drop" if preset.reasoning_field in self._dropped else self.config.reasoning
        wire = [
            wire_message(message, reasoning=reasoning, field=preset.reasoning_field, call_ids=preset.call_ids)
            for message in history
        ]
        marked = self.config.model.startswith(preset.cache_marks) if preset.cache_marks else False
        return mark_for_cache(wire) if marked else wire

    def _adapt(self, fields: tuple[str, ...]) -> None:
        """Asks this server without `fields` from now on; the two names of the output limit replace each other."""
        self._dropped.extend(fields)
        if self._limit_field in fields:
            self._limit_field = next(name for name in _LIMIT_FIELDS if name != self._limit_field)

    def _exchange(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Any:
        with self._errors(chat=True, tools=bool(tools)):
            create = self._connect().chat.completions.with_streaming_response.create
            with create(model=self.config.model, messages=messages, extra_body=self._fields(tools)) as response:
                content_type = response.headers.get("content-type", "")
                if "event-stream" in content_type:
                    return assemble(response.iter_lines())
                return _decode(response.read(), content_type)

    def _fields(self, tools: list[dict[str, Any]]) -> dict[str, Any]:
        config = self.config
        fields: dict[str, Any] = {
            "temperature": config.temperature,
            "top_p": config.top_p,
            "seed": config.seed,
            self._limit_field: config.max_output_tokens,
            "stream": True if config.stream else None,
            "stream_options": {"include_usage": True} if config.stream else None,
            "logprobs": True if config.record_token_ids else None,
            "return_token_ids": True if config.record_token_ids else None,
            "tools": tools or None,
            "tool_choice": "auto" if tools else None,
            **self._constraint,
        }
        given = {key: value for key, value in fields.items() if value is not None and key not in self._dropped}
        return {**given, **clean_json(config.extra_body)}

    @contextmanager
    def _errors(self, *, chat: bool = False, tools: bool = False) -> Iterator[None]:
        """Every way in which a request can fail, as RequestFailed or as an error that ends the turn."""
        import openai

        try:
            yield
        except openai.APIConnectionError as error:
            raise RequestFailed(self._transport_failure(error.__cause__ or error)) from None
        except openai.APIStatusError as error:
            raise self._status_error(error.status_code, error.response, chat=chat, tools=tools) from None
        except (openai.OpenAIError, ValueError) as error:
            raise RequestFailed(Failure("protocol", f"unusable answer: {error}"[:300], attempt_limit=3)) from None
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in ("httpx", "httpx2", "httpcore", "httpcore2"):
                raise
            raise RequestFailed(self._transport_failure(error)) from None

    def _transport_failure(self, cause: BaseException) -> Failure:
        """Before the first answer a refused connection is most likely a wrong address: not worth minutes of waiting."""
        kind = type(cause).__name__
        if kind.startswith("Connect"):
            hint = "check backend.base_url and that the server runs"
            limit = None if self._answered else _FEW_ATTEMPTS
            return Failure("unreachable", f"cannot reach {self.public_url}: {cause}".rstrip(": "), hint, limit)
        if "Timeout" in kind:
            message = f"no answer from {self.public_url} within {self.config.timeout_s:g} s"
            return Failure("timeout", message, "raise backend.timeout_s", _FEW_ATTEMPTS)
        return Failure("unreachable", f"the connection to {self.public_url} broke off: {cause}".rstrip(": "))

    def _status_error(self, status: int, response: Any, *, chat: bool, tools: bool) -> Exception:
        body = response.text.replace(self._key, "…") if len(self._key) >= 8 else response.text
        failure = status_failure(status, body, dict(response.headers), key_name=key_variable(self.config))
        if not chat:
            return RequestFailed(failure)
        if is_overflow(status, body):
            return ContextOverflow(failure.message)
        if tools and refuses_tools(status, body):
            return ToolsRefused(failure.message)
        sent = self._fields([]).keys() - self.config.extra_body.keys()
        fields = refused_fields(status, body, tuple(name for name in _OPTIONAL if name in sent))
        name = self.preset.reasoning_field
        if self.config.reasoning != "drop" and name not in self._dropped and refuses_field(status, body, name):
            fields = (*fields, name)
        if self._limit_field in sent and refuses_field(status, body, self._limit_field):
            fields = (*fields, self._limit_field)
        if fields:
            return _FieldRefused(fields)
        return self._not_found(failure) if status == 404 else RequestFailed(failure)

    def _not_found(self, failure: Failure) -> Exception:
        """A 404 is an unknown model where the server lists others, else most likely a wrong path."""
        try:
            known = self.models()
        except BackendError:
            known = ()
        model = self.config.model
        if model in known or not (known or model in failure.message or "model" in failure.message.lower()):
            hint = "backend.base_url usually ends in /v1"
            return BackendError(
                f"no chat completions at {self.public_url}: {failure.message}", kind="bad_request", hint=hint
            )
        near = difflib.get_close_matches(model, known, n=3, cutoff=0.3) or list(known[:3])
        hint = f"the server has {', '.join(near)}" if near else failure.message
        return BackendError(f"the server does not know the model {model}", kind="model_not_found", hint=hint)

    def _connect(self) -> Any:
        if self._client is None:
            import openai

            direct: dict[str, Any] = (
                {"http_client": openai.DefaultHttpxClient(trust_env=False)} if is_loopback(self.base_url) else {}
            )
            timeout = openai.Timeout(self.config.timeout_s, connect=min(CONNECT_TIMEOUT_S, self.config.timeout_s))
            self._client = openai.OpenAI(
                base_url=self.base_url, api_key=self._key, max_retries=0, timeout=timeout, **direct
            )
        return self._client


class _FieldRefused(Exception):
    def __init__(self, fields: tuple[str, ...]) -> None:
        super().__init__(", ".join(fields))
        self.fields = fields


def check_base_url(url: str) -> str:
    """The root without a trailing slash or /chat/completions. Raises ConfigError for anything but http(s)://host…"""
    root = url.strip().rstrip("/").removesuffix("/chat/completions")
    try:
        parts = urlsplit(root)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"backend.base_url {url!r} is no URL", hint="for instance http://127.0.0.1:8000/v1")
    return root


def without_password(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def window_of(entry: Mapping[str, Any]) -> int:
    """Tokens of context in one entry of /models: vLLM, SGLang, OpenRouter, Together, Groq, Mistral, llama.cpp."""
    meta = entry.get("meta")
    places = (entry, meta if isinstance(meta, Mapping) else {})
    for place in places:
        for key in _WINDOWS:
            value = place.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return 0


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _require_key(config: BackendConfig, base_url: str) -> str:
    key = (api_key(config) or "").strip()
    if not key and not is_loopback(base_url):
        hint = f"export {key_variable(config)}=…, or name another variable with --api-key-env"
        raise BackendError(
            f"no key for {without_password(base_url)}: ${key_variable(config)} is not set", kind="no_key", hint=hint
        )
    if not key.isascii() or not key.isprintable():
        raise BackendError(f"the key in ${key_variable(config)} has characters that no key has", kind="auth")
    return key or "none"


def _decode(content: bytes, content_type: str) -> Any:
    text = content.decode("utf-8", "replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise RequestFailed(not_json_failure(text, content_type)) from None

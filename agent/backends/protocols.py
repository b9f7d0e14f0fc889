"""Which notation a model's calls have: native, native until tools are refused, fenced text, or one JSON object."""

from collections.abc import Mapping, Sequence
from typing import Any

from agent.backends.base import Backend, Message, Reply, ToolSchema
from agent.backends.foreign import with_foreign_calls
from agent.backends.json_protocol import JsonProtocolBackend
from agent.backends.openai_api import ToolsRefused
from agent.backends.presets import preset_for, resolve
from agent.backends.text_protocol import TextProtocolBackend
from agent.backends.wrapper import Wrapper
from agent.config import BackendConfig


def with_protocol(backend: Backend, config: BackendConfig) -> Backend:
    """`backend` behind the protocol that the configuration, or the provider's preset, names."""
    preset, config = preset_for(config), resolve(config)
    grammar, context = preset.grammar and config.constrain, config.context_tokens
    match config.tool_protocol:
        case "native":
            return backend
        case "text":
            return TextProtocolBackend(backend, context_tokens=context, grammar=grammar)
        case "json":
            return JsonProtocolBackend(backend, form=preset.schema_form if config.constrain else "")
        case _:
            return AutoProtocolBackend(backend, context_tokens=context, grammar=grammar)


class AutoProtocolBackend(Wrapper):
    """Native calls until the server refuses tools, then the fenced-text protocol for the rest of the run.

    Every reply since then says so in `raw`, so that the log does.
    """

    def __init__(self, inner: Backend, *, context_tokens: int = 0, grammar: bool = False) -> None:
        super().__init__(inner)
        self._context_tokens = context_tokens
        self._grammar = grammar
        self._text: TextProtocolBackend | None = None
        self._refusal = ""

    def describe(self) -> Mapping[str, Any]:
        if self._text is None:
            return {**self.inner.describe(), "tool_protocol": "native"}
        return {**self._text.describe(), "tool_protocol_reason": self._refusal}

    def chat(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> Reply:
        if self._text is None:
            try:
                return native_reply(self.inner.chat(messages, tools), messages, tools)
            except ToolsRefused as error:
                self._refusal = error.message
                self._text = TextProtocolBackend(self.inner, context_tokens=self._context_tokens, grammar=self._grammar)
                return self._as_text(messages, tools, refused=1)
        return self._as_text(messages, tools)

    def _as_text(self, messages: Sequence[Message], tools: Sequence[ToolSchema], *, refused: int = 0) -> Reply:
        assert self._text is not None
        reply = self._text.chat(messages, tools)
        raw = {**reply.raw, "tool_protocol": "text", "tool_protocol_reason": self._refusal}
        return reply.model_copy(update={"attempts": reply.attempts + refused, "raw": raw})


def native_reply(reply: Reply, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> Reply:
    """The reply; where the server has no parser for its model's calls, they stand in the text and are read there."""
    if reply.calls or not tools or reply.finish_reason in ("length", "refusal"):
        return reply
    turn = sum(message.role == "assistant" for message in messages)
    return with_foreign_calls(reply, tools, turn=turn) or reply

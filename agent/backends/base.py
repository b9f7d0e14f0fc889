"""The Backend protocol: messages and tool schemas in, one Reply out; and the message types that everybody speaks."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict

Role = Literal["system", "user", "assistant", "tool"]
FinishReason = Literal["stop", "tool_calls", "length", "refusal", "other"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(_Frozen):
    """One call as the model wrote it: `arguments` is the raw string, JSON or not."""

    id: str
    name: str
    arguments: str


class Message(_Frozen):
    """One chat message. `tool_call_id` belongs to role tool only; `tool_calls` and `reasoning` to assistant only."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: str | None = None


class ToolSchema(_Frozen):
    """One action as the model sees it; `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any]


class Usage(_Frozen):
    """Tokens of one call. `cost_usd` is None where the price is unknown, never a guess."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None


class Reply(_Frozen):
    """What the model answered. `raw` is the server's answer as it came; ids and logprobs where the server gave them.

    len(logprobs) == len(completion_token_ids) wherever both are given. `attempts` counts requests including retries;
    `latency_s` is the time of the successful request, `waited_s` what retries and rate limits cost.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish_reason: FinishReason = "stop"
    usage: Usage = Usage()
    reasoning: str | None = None
    refusal: str | None = None
    model: str = ""
    raw: dict[str, Any] = {}
    prompt_token_ids: tuple[int, ...] | None = None
    completion_token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    attempts: int = 1
    latency_s: float = 0.0
    waited_s: float = 0.0


class Backend(Protocol):
    """A language model, or something that acts like one."""

    @property
    def name(self) -> str:
        """Short name for logs: `openai:gpt-x`, `replay:examples/…`."""
        ...

    def chat(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> Reply:
        """One turn. Raises BackendError (infrastructure) or ContextOverflow (the window is full)."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """What to record about this backend (model, base URL, sampling), without secrets."""
        ...

    def close(self) -> None: ...

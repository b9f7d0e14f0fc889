"""Turns whatever a trainer holds as an assistant message into the Reply that the loop records.

Covers OpenAI-style dicts and whole chat completions (calls or fenced action blocks), the openai library's objects,
Message, Reply and plain text; all but a Reply go through the parser of the OpenAI-compatible backend.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from agent.backends.base import Message, Reply, ToolSchema, Usage
from agent.backends.json_protocol import read_object
from agent.backends.replies import parse_reply
from agent.backends.retry import RequestFailed
from agent.backends.text_protocol import read_actions
from agent.backends.wire import wire_message
from agent.errors import ConfigError

ACTION_FENCE: Final = re.compile(r"^ {0,3}`{3,}[ \t]*action\b", re.MULTILINE)
HINT: Final = "give an OpenAI-style dict, a Message, a Reply, or a str"
Protocol = Literal["auto", "native", "text", "json"]


@dataclass(frozen=True)
class Tokens:
    """What the policy's engine knows about one assistant message: ids of its whole prompt and of what was sampled.

    len(logprobs) == len(completion_ids) where both are given; logprobs are natural logarithms.
    """

    prompt_ids: Sequence[int] | None = None
    completion_ids: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None

    def __post_init__(self) -> None:
        for name in ("prompt_ids", "completion_ids", "logprobs"):
            if not hasattr(getattr(self, name), "__len__") and getattr(self, name) is not None:
                raise ConfigError(f"{name} is a {type(getattr(self, name)).__name__}: give a list of numbers")
        ids, logprobs = self.completion_ids, self.logprobs
        if logprobs is not None and (ids is None or len(ids) != len(logprobs)):
            count = 0 if ids is None else len(ids)
            raise ConfigError(f"{len(logprobs)} logprobs for {count} completion token ids: give one for each")


def to_reply(
    message: Any,
    *,
    turn: int,
    tools: Sequence[ToolSchema],
    protocol: Protocol = "auto",
    tokens: Tokens | None = None,
    finish_reason: str | None = None,
) -> Reply:
    """The reply, calls and all, as a backend would have given it. Raises ConfigError for what is no assistant message.

    `finish_reason` "length" says that the message was cut off: its calls are then not executed. Fenced action blocks
    are read where the protocol is `text`, or `auto` and the text has one; one JSON object where it is `json`.
    """
    try:
        reply = _read(message, turn, tools, protocol, tokens, finish_reason)
        json.dumps(reply.model_dump())  # what cannot be recorded must not end an episode
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())[:200]
        raise ConfigError(f"this is no assistant message: {what}", hint=HINT) from error
    return reply


def _read(
    message: Any,
    turn: int,
    tools: Sequence[ToolSchema],
    protocol: Protocol,
    tokens: Tokens | None,
    finish_reason: str | None,
) -> Reply:
    reply = message if isinstance(message, Reply) else _parsed(message, finish_reason)
    if tokens is not None:
        reply = _with_tokens(reply, tokens)
    if protocol == "json":
        return read_object(reply, tools, turn=turn)
    if protocol == "text" or (protocol == "auto" and ACTION_FENCE.search(reply.text)):
        reply = read_actions(reply, tools, turn=turn)
    return reply


def _parsed(message: Any, finish_reason: str | None) -> Reply:
    body = _completion(_plain(message), finish_reason)
    try:
        return parse_reply(body, price=None)
    except RequestFailed as error:
        raise ConfigError(f"this is no assistant message: {error.failure.message}", hint=HINT) from error


def _plain(message: Any) -> dict[str, Any]:
    match message:
        case str():
            return {"role": "assistant", "content": message}
        case Message(role="assistant"):
            return {**wire_message(message), "reasoning_content": message.reasoning}
        case Message():
            raise ConfigError(f"the policy speaks as role assistant, not {message.role}")
        case Mapping():
            return dict(message)
    dump = getattr(message, "model_dump", None)  # the openai library's own objects
    value = dump(exclude_none=True) if callable(dump) else None
    if not isinstance(value, dict):
        raise ConfigError(f"a {type(message).__name__} is no assistant message", hint=HINT)
    return value


def _completion(message: dict[str, Any], finish_reason: str | None) -> dict[str, Any]:
    if "choices" in message:
        return _ended(message, finish_reason) if finish_reason else message
    if message.get("role", "assistant") != "assistant":
        raise ConfigError(f"the policy speaks as role assistant, not {message['role']}")
    if not message.keys() & {"content", "tool_calls"}:
        raise ConfigError("an assistant message has content or tool_calls", hint=HINT)
    return {"choices": [{"message": message, "finish_reason": finish_reason}]}


def _ended(completion: dict[str, Any], finish_reason: str) -> dict[str, Any]:
    """What the trainer says about the end goes before what the server said."""
    choices = completion["choices"]
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return completion
    return {**completion, "choices": [{**choices[0], "finish_reason": finish_reason}, *choices[1:]]}


def _with_tokens(reply: Reply, tokens: Tokens) -> Reply:
    prompt, completion = _ints(tokens.prompt_ids), _ints(tokens.completion_ids)
    usage = reply.usage
    if not (usage.prompt_tokens or usage.completion_tokens):
        usage = Usage(prompt_tokens=len(prompt or ()), completion_tokens=len(completion or ()))
    return reply.model_copy(
        update={
            "usage": usage,
            "prompt_token_ids": prompt,
            "completion_token_ids": completion,
            "logprobs": None if tokens.logprobs is None else tuple(map(float, tokens.logprobs)),
        }
    )


def _ints(ids: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if ids is None else tuple(map(int, ids))

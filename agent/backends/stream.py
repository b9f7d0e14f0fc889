"""Assembles a stream of chat-completion chunks (server-sent events) into the body that a plain request would return."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from agent.backends.failures import error_text, is_overflow
from agent.backends.retry import Failure, RequestFailed
from agent.errors import ContextOverflow

_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")


def assemble(lines: Iterable[str]) -> dict[str, Any]:
    """Raises RequestFailed for a broken or unfinished stream, ContextOverflow where the stream reports one."""
    body: dict[str, Any] = {}
    choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant"}, "finish_reason": None}
    seen = False
    for chunk in _chunks(lines):
        seen = True
        _merge_root(body, chunk)
        for delta in chunk.get("choices") or ():
            if isinstance(delta, dict) and delta.get("index", 0) == 0:
                _merge_choice(choice, delta)
    if not seen:
        raise RequestFailed(Failure("protocol", "the server sent no stream events", "try backend.stream=false", 3))
    if choice["finish_reason"] is None:
        raise RequestFailed(Failure("protocol", "the stream ended before the reply did", attempt_limit=3))
    return {**body, "object": "chat.completion", "choices": [choice]}


def _chunks(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            return
        try:
            chunk = json.loads(data)
        except ValueError:
            raise RequestFailed(Failure("protocol", f"broken stream event: {data[:80]!r}", attempt_limit=3)) from None
        if isinstance(chunk, dict):
            _raise_error(chunk, data)
            yield chunk


def _raise_error(chunk: dict[str, Any], data: str) -> None:
    if not chunk.get("error"):
        return
    if is_overflow(400, data):
        raise ContextOverflow(error_text(data))
    raise RequestFailed(Failure("server", f"the server broke off: {error_text(data)}"))


def _merge_root(body: dict[str, Any], chunk: dict[str, Any]) -> None:
    for key, value in chunk.items():
        if key != "choices" and value is not None:
            body[key] = value


def _merge_choice(choice: dict[str, Any], delta: dict[str, Any]) -> None:
    message = choice["message"]
    part = delta.get("delta") or {}
    for key in _TEXTS:
        if isinstance(part.get(key), str):
            message[key] = message.get(key, "") + part[key]
    for call in part.get("tool_calls") or ():
        if isinstance(call, dict):
            _merge_call(message.setdefault("tool_calls", []), call)
    if isinstance(delta.get("token_ids"), list):
        choice.setdefault("token_ids", []).extend(delta["token_ids"])
    if isinstance(delta.get("prompt_token_ids"), list):
        choice["prompt_token_ids"] = delta["prompt_token_ids"]
    logprobs = delta.get("logprobs")
    if isinstance(logprobs, dict) and isinstance(logprobs.get("content"), list):
        choice.setdefault("logprobs", {"content": []})["content"].extend(logprobs["content"])
    if delta.get("finish_reason"):
        choice["finish_reason"] = delta["finish_reason"]


def _merge_call(calls: list[dict[str, Any]], delta: dict[str, Any]) -> None:
    """Deltas name their call by `index`; some servers leave it out and send each call whole, with its id."""
    index = delta.get("index")
    call = next((c for c in calls if index is not None and c["index"] == index), None)
    if call is None and index is None and calls and not delta.get("id"):
        call = calls[-1]
    if call is None:
        call = {"index": index if index is not None else len(calls), "id": "", "type": "function"}
        call["function"] = {"name": "", "arguments": ""}
        calls.append(call)
    function = delta.get("function") or {}
    call["id"] = delta.get("id") or call["id"]
    call["function"]["name"] += function.get("name") or ""
    arguments = function.get("arguments")
    call["function"]["arguments"] += (
        arguments if isinstance(arguments, str) else json.dumps(arguments) if arguments else ""
    )

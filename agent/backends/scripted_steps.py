"""The answers that the scripted server can give: replies of every kind, and each way in which real servers fail."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

_PIECE: Final = 7


@dataclass(frozen=True)
class Step:
    """One HTTP answer. A mapping is sent as JSON (and as a stream where the client asks and `streams` allows it).

    `cut`: the connection drops before the first byte, or half-way through the body. `delay_s` comes first.
    """

    body: Mapping[str, Any] | str = ""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "application/json"
    delay_s: float = 0.0
    cut: Literal["", "before", "within"] = ""
    streams: bool = False

    def after(self, delay_s: float) -> "Step":
        return replace(self, delay_s=delay_s)

    def cut_within(self) -> "Step":
        return replace(self, cut="within")


def reply(
    text: str = "",
    calls: Sequence[tuple[str, Any]] = (),
    *,
    finish: str | None = None,
    reasoning: str | None = None,
    refusal: str | None = None,
    ids: Literal["", "root", "choice"] = "",
    cached_tokens: int = 0,
    id_prefix: str = "call",
    usage: Mapping[str, Any] | None = None,
) -> Step:
    """A completion. Arguments of `calls` are objects, or strings sent as they are, JSON or not.

    `ids` adds token ids (the bytes of the text) and logprobs, with prompt ids at the root or in the choice; the server
    leaves them out unless the request asks for them.
    """
    message: dict[str, Any] = {"role": "assistant", "content": text or None, "refusal": refusal}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [_call(f"{id_prefix}_{k}", *call) for k, call in enumerate(calls)]
    choice: dict[str, Any] = {
        "index": 0,
        "message": message,
        "finish_reason": finish or ("tool_calls" if calls else "stop"),
    }
    counts = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }
    body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "scripted", "choices": [choice]}
    body["usage"] = dict(counts if usage is None else usage)
    if ids:
        codes = list(text.encode())
        choice["token_ids"] = codes
        choice["logprobs"] = {"content": [{"token": chr(code), "logprob": -0.25} for code in codes]}
        (body if ids == "root" else choice)["prompt_token_ids"] = [1, 2, 3]
    return Step(body, streams=True)


def _call(id: str, name: str, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}


def error(status: int, message: str, *, code: str | None = None, retry_after: str | None = None) -> Step:
    """An error in OpenAI's form."""
    headers = () if retry_after is None else (("Retry-After", retry_after),)
    return Step({"error": {"message": message, "type": "error", "code": code}}, status=status, headers=headers)


def rate_limited(retry_after: str | None = "0") -> Step:
    return error(429, "Rate limit reached", code="rate_limit_exceeded", retry_after=retry_after)


def overflow() -> Step:
    said = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens."
    return error(400, said, code="context_length_exceeded")


def html(status: int = 200) -> Step:
    page = "<!DOCTYPE html><html><head><title>Sign in</title></head><body>Please sign in.</body></html>"
    return Step(page, status=status, content_type="text/html")


def empty_choices() -> Step:
    return Step({"id": "chatcmpl-1", "object": "chat.completion", "model": "scripted", "choices": []})


def broken_json() -> Step:
    return Step('{"id": "chatcmpl-1", "choices": [{"message": {"content": "ha')


def dropped() -> Step:
    return Step(cut="before")


def without_ids(body: Mapping[str, Any]) -> dict[str, Any]:
    """The completion as a server gives it that was not asked for token ids."""
    hidden = ("prompt_token_ids", "token_ids", "logprobs")
    choices = [{k: v for k, v in choice.items() if k not in hidden} for choice in body.get("choices", ())]
    return {**{k: v for k, v in body.items() if k not in hidden}, "choices": choices}


def stream_events(body: Mapping[str, Any], *, usage: bool) -> Iterator[str]:
    """The completion as server-sent events in small pieces; usage only in a last chunk, and only where asked for."""
    root = {k: v for k, v in body.items() if k not in ("choices", "usage", "prompt_token_ids", "object")}
    root["object"] = "chat.completion.chunk"
    choice = body["choices"][0]
    first: dict[str, Any] = {"role": "assistant", "content": ""}
    extra = {"prompt_token_ids": body["prompt_token_ids"]} if "prompt_token_ids" in body else {}
    yield _event(root | extra, choices=[{"index": 0, "delta": first, "finish_reason": None}])
    for delta, tokens in _deltas(choice):
        yield _event(root, choices=[{"index": 0, "delta": delta, "finish_reason": None, **tokens}])
    last = {"prompt_token_ids": choice["prompt_token_ids"]} if "prompt_token_ids" in choice else {}
    yield _event(root, choices=[{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"], **last}])
    if usage:
        yield _event(root, choices=[], usage=body["usage"])
    yield "data: [DONE]\n\n"


def _event(root: Mapping[str, Any], **fields: Any) -> str:
    return f"data: {json.dumps({**root, **fields})}\n\n"


def _deltas(choice: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    message = choice["message"]
    for piece in _pieces(message.get("reasoning_content")):
        yield {"reasoning_content": piece}, {}
    at = 0
    for piece in _pieces(message.get("content")):
        end = at + (len(piece.encode()) if "token_ids" in choice else 0)
        yield {"content": piece}, _tokens(choice, at, end)
        at = end
    for piece in _pieces(message.get("refusal")):
        yield {"refusal": piece}, {}
    for index, call in enumerate(message.get("tool_calls", ())):
        opening = {"index": index, "id": call["id"], "type": "function"}
        yield {"tool_calls": [{**opening, "function": {"name": call["function"]["name"], "arguments": ""}}]}, {}
        for piece in _pieces(call["function"]["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}, {}


def _tokens(choice: Mapping[str, Any], at: int, end: int) -> dict[str, Any]:
    if "token_ids" not in choice:
        return {}
    logprobs = {"content": choice["logprobs"]["content"][at:end]}
    return {"token_ids": choice["token_ids"][at:end], "logprobs": logprobs}


def _pieces(text: str | None) -> Iterator[str]:
    for at in range(0, len(text or ""), _PIECE):
        yield (text or "")[at : at + _PIECE]

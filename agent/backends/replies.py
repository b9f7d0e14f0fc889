"""Turns a chat completion (a decoded JSON body) into a Reply, whatever the server's dialect.

Covers: reasoning fields and <think> blocks, calls with object or missing arguments, refusals, output limits, both
placements of token ids. Does not cover: several choices (only the first is read), audio, images.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from agent.backends.base import FinishReason, Reply, ToolCall, Usage
from agent.backends.failures import error_text, is_overflow
from agent.backends.prices import Price
from agent.backends.retry import Failure, RequestFailed
from agent.backends.sanitize import clean_json, unique_ids
from agent.errors import ContextOverflow

_REFUSAL = re.compile(
    r"((i['’]m|i am) sorry|sorry|i apologi[sz]e|unfortunately)?[,.]?\s*(but )?"
    r"i\s?(can['’]t|cannot|can not|am unable to|['’]m unable to|am not able to|['’]m not able to|won['’]t)"
    r" ((assist|help) (you )?with (this|that|your)|comply with|fulfill? (this|that|your))\b",
    re.IGNORECASE,
)
_REFUSAL_CHARS: Final = 400
MOST: Final = 10**12
"""Tokens or dollars of one reply: a server that names more sends nonsense, and sums must fit a checkpoint."""


def parse_reply(body: Any, *, price: Price | None) -> Reply:
    """Raises RequestFailed (kind protocol) when there is no message in `body`.

    Calls of a reply that was cut off or refused are dropped: they are in `raw`, and must not be executed. Token ids
    and logprobs are lifted out of `raw`, so that they are stored once. Raises ContextOverflow where a 200 reports one.
    """
    completion = clean_json(body)
    choice, message = _first_choice(completion)
    text, reasoning = _split_reasoning(_text(message.get("content")), _reasoning(message))
    calls = _calls(message.get("tool_calls"))
    refusal = _refusal(choice, message, text, calls)
    finish = _finish(choice.get("finish_reason"), calls, refusal)
    ids = _token_fields(completion, choice)
    return Reply(
        text=text,
        calls=calls if finish == "tool_calls" else (),
        finish_reason=finish,
        usage=_usage(completion.get("usage"), price),
        reasoning=reasoning,
        refusal=refusal,
        model=str(completion.get("model") or ""),
        raw=completion,
        **ids,
    )


def _first_choice(completion: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    if not isinstance(completion, dict):
        raise _unusable("the server's JSON is no object")
    if completion.get("error"):
        said = json.dumps(completion["error"])
        if is_overflow(200, said):
            raise ContextOverflow(error_text(said))
        raise _unusable(f"the server reported an error: {error_text(said)}")
    choices = completion.get("choices")
    if not isinstance(choices, list) or not choices:
        raise _unusable("the server's answer has no choices")
    message = choices[0].get("message") if isinstance(choices[0], dict) else None
    if not isinstance(message, dict):
        raise _unusable("the server's answer has a choice without a message")
    return choices[0], message


def _unusable(message: str) -> RequestFailed:
    return RequestFailed(Failure("protocol", message, attempt_limit=3))


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _reasoning(message: Mapping[str, Any]) -> str | None:
    for key in ("reasoning_content", "reasoning"):
        if isinstance(message.get(key), str) and message[key]:
            return str(message[key])
    return None


def _split_reasoning(text: str, reasoning: str | None) -> tuple[str, str | None]:
    """A server without a reasoning parser leaves the thoughts in the text, often without the opening tag."""
    head, tag, tail = text.partition("</think>")
    before, opening, thought = head.partition("<think>")
    if reasoning or (before.strip() and opening):
        return text, reasoning
    if tag:
        return tail.lstrip("\n"), (thought if opening else head).strip() or None
    return ("", thought.strip() or None) if opening else (text, None)


def _calls(value: Any) -> tuple[ToolCall, ...]:
    items = [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
    ids = unique_ids(str(item.get("id") or "") for item in items)
    functions = [item["function"] if isinstance(item.get("function"), dict) else {} for item in items]
    return tuple(
        ToolCall(id=id, name=str(function.get("name") or ""), arguments=_arguments(function.get("arguments")))
        for id, function in zip(ids, functions, strict=True)
    )


def _arguments(value: Any) -> str:
    if value is None or value == "":
        return "{}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _refusal(
    choice: Mapping[str, Any], message: Mapping[str, Any], text: str, calls: tuple[ToolCall, ...]
) -> str | None:
    """The model's or the provider's words; a text counts only if short, without calls, and opening as refusals do."""
    if isinstance(message.get("refusal"), str) and message["refusal"]:
        return str(message["refusal"])
    if choice.get("finish_reason") == "content_filter":
        return text or "stopped by the provider's content filter"
    short = len(text) <= _REFUSAL_CHARS and "```" not in text
    return text if short and not calls and _REFUSAL.match(text.strip()) else None


def _finish(reason: Any, calls: tuple[ToolCall, ...], refusal: str | None) -> FinishReason:
    if refusal is not None:
        return "refusal"
    if reason in ("length", "max_tokens") or (reason in ("tool_calls", "function_call") and not calls):
        return "length"
    if calls:
        return "tool_calls"
    return "stop" if reason in ("stop", "eos", "end_turn", None) else "other"


def _usage(value: Any, price: Price | None) -> Usage:
    usage = value if isinstance(value, dict) else {}
    counts = {
        "prompt_tokens": _count(usage.get("prompt_tokens")),
        "completion_tokens": _count(usage.get("completion_tokens")),
        "cached_tokens": _cached(usage),
    }
    cost = price.cost_usd(**counts) if price and usage else _billed(usage.get("cost"))
    return Usage(**counts, cost_usd=cost)


def _cached(usage: Mapping[str, Any]) -> int:
    """OpenAI's place, else DeepSeek's."""
    details = usage.get("prompt_tokens_details")
    found = _count(details.get("cached_tokens")) if isinstance(details, dict) else 0
    return found or _count(usage.get("prompt_cache_hit_tokens"))


def _billed(value: Any) -> float | None:
    """What a router says that it charged."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST
    return float(value) if known else None


def _count(value: Any) -> int:
    return int(min(value, MOST)) if isinstance(value, int | float) and value >= 0 else 0


def _token_fields(completion: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
    """Ids and logprobs; where their lengths differ the logprobs are dropped and `raw` says so."""
    prompt = _take_ids(completion, choice, "prompt_token_ids")
    ids = _take_ids(choice, completion, "token_ids")
    logprobs = _logprobs(choice.get("logprobs"))
    if logprobs is not None:
        choice.pop("logprobs")
    if ids is not None and logprobs is not None and len(ids) != len(logprobs):
        completion["token_record_error"] = f"{len(ids)} token ids but {len(logprobs)} logprobs"
        logprobs = None
    return {"prompt_token_ids": prompt, "completion_token_ids": ids, "logprobs": logprobs}


def _take_ids(first: dict[str, Any], second: dict[str, Any], key: str) -> tuple[int, ...] | None:
    found: tuple[int, ...] | None = None
    for place in (second, first):
        value = place.get(key)
        if isinstance(value, list) and all(type(item) is int for item in value):
            found = tuple(place.pop(key))
    return found


def _logprobs(value: Any) -> tuple[float, ...] | None:
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, list) or not content:
        return None
    numbers = [item.get("logprob") if isinstance(item, dict) else None for item in content]
    return tuple(float(n) for n in numbers) if all(isinstance(n, int | float) for n in numbers) else None  # type: ignore[arg-type]

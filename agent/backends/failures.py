"""Reads what a server said when it refused: context overflow, no tools, an unknown field, a wrong key, or try again.

Servers agree on status codes only roughly, so wording decides where it must. The phrases are those that OpenAI, vLLM,
SGLang, llama.cpp, Ollama, TGI and the common routers use; a wording not listed is reported as it came.
"""

import json
import re
from typing import Any, Final

from agent.backends.retry import Failure, retry_after_s
from agent.backends.sanitize import clean_text
from agent.errors import BackendErrorKind

OVERFLOW: Final = (
    "context_length_exceeded",
    "context length",
    "context window",
    "maximum model length",
    "exceed_context_size",
    "available context size",
    "context size has been exceeded",
    "prompt_too_long",
    "prompt is too long",
    "input is too long",
    "maximum prompt length",
    "reduce the length of the messages",
    "exceeds the configured limit",
    "exceed the configured limit",
    "exceeded model token limit",
    "too large for model with",
    "input token count",
    "`inputs` tokens + `max_new_tokens`",
)
_OVERFLOW_STATUS: Final = frozenset({200, 400, 413, 422, 500})
_TOOLS = re.compile(r"\btools?\b|tool[_ -]?(choice|use|call)|function[_ -]?call", re.IGNORECASE)
_NOT_THERE = re.compile(
    r"not support|n't support|unsupported|requires? --|not (enabled|available|permitted|allowed)|unrecognized"
    r"|unknown (field|parameter|argument)|extra inputs|no endpoints|only supports",
    re.IGNORECASE,
)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_TRANSIENT: Final = frozenset({408, 409, 425, 429})
_SPENT: Final = ("insufficient_quota", "billing_hard_limit", "exceeded your current quota")


def error_text(body: str) -> str:
    """The one sentence in an error body: error.message, message, detail, an HTML title, or its first characters."""
    try:
        found = _message(json.loads(body))
    except (ValueError, RecursionError):
        found = None
    if found is None and (title := _TITLE.search(body)):
        found = title.group(1)
    text = " ".join(clean_text(found if found is not None else body).split())
    return text if len(text) <= 400 else text[:400] + "…"


def _message(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        return _message(value[0])
    if isinstance(value, dict):
        for key in ("error", "message", "detail", "msg"):
            if value.get(key) and (found := _message(value[key])):
                return found
    return None


def is_overflow(status: int, body: str) -> bool:
    """The request does not fit the model's window. Rate limits in tokens (429) are something else."""
    text = body.lower()
    return status in _OVERFLOW_STATUS and any(phrase in text for phrase in OVERFLOW)


def refuses_tools(status: int, body: str) -> bool:
    """The server or the model cannot take tools at all (a malformed history or schema is not that)."""
    text = error_text(body)
    return status in (400, 404, 422, 500, 501) and bool(_TOOLS.search(text) and _NOT_THERE.search(text))


def refused_fields(status: int, body: str, candidates: tuple[str, ...]) -> tuple[str, ...]:
    """Those of `candidates` that a 400 or 422 names."""
    if status not in (400, 422):
        return ()
    return tuple(name for name in candidates if re.search(rf"\b{re.escape(name)}\b", body))


def refuses_field(status: int, body: str, name: str) -> bool:
    """`name` itself is not known there; a complaint about its value is not that."""
    return bool(refused_fields(status, body, (name,)) and _NOT_THERE.search(body))


def status_failure(status: int, body: str, headers: dict[str, str], *, key_name: str) -> Failure:
    """What an HTTP error means for the retry loop. `headers` has lower-case names; `key_name` is the key's variable."""
    said = error_text(body) or "no message"
    line = f"the server answered {status}: {said}"
    if status == 401:
        return Failure("auth", f"the server refused the key: {said}", f"check the key in ${key_name}", 1)
    if status == 403:
        return Failure("auth", line, f"the key in ${key_name} may not use this model", 1)
    if status == 429 and any(word in body.lower() for word in _SPENT):
        return Failure("rate_limit", line, "the account's quota is used up", 1)
    if status in _TRANSIENT or status >= 500:
        kind: BackendErrorKind = "rate_limit" if status == 429 else "timeout" if status == 408 else "server"
        asked = retry_after_s(headers.get("retry-after"), milliseconds=headers.get("retry-after-ms"))
        return Failure(kind, line, retry_after_s=asked)
    return Failure("bad_request", line, attempt_limit=1)


def not_json_failure(text: str, content_type: str) -> Failure:
    """A 200 whose body is no chat completion: a web page is the wrong address, broken JSON may be better next time."""
    if "html" in content_type or text.lstrip()[:15].lower().startswith(("<!doctype", "<html")):
        title = f" ({error_text(text)})" if _TITLE.search(text) else ""
        return Failure("protocol", f"the server sent a web page instead of JSON{title}", "check backend.base_url", 1)
    if not text.strip():
        return Failure("protocol", "the server sent an empty body", attempt_limit=3)
    return Failure("protocol", f"the server sent invalid JSON: {clean_text(text[:80])!r}", attempt_limit=3)

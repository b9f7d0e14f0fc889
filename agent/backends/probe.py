"""Checks of the model's side: is there a key, does the server answer, does it know the model, do tool calls work."""

import difflib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.backends.base import Backend, Message, Reply, ToolSchema
from agent.backends.local import LocalBackend
from agent.backends.openai_api import OpenAIBackend
from agent.backends.presets import names_a_server, resolve
from agent.backends.protocols import with_protocol
from agent.backends.registry import make_backend
from agent.backends.sanitize import parse_object
from agent.backends.wording import render_template
from agent.config import BackendConfig
from agent.errors import AgentError, BackendError, ConfigError

Check = tuple[str, bool, str]
_NUMBER = 4817
_TOOL = ToolSchema(
    name="report_number",
    description="Report a number.",
    parameters={"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
)


@dataclass(frozen=True)
class Examination:
    """(check, ok, detail) in the order in which things depend on each other; it stops where the rest cannot work.

    `about` is the backend's own description after the round trip: refused fields and the protocol fallen back to.
    """

    checks: tuple[Check, ...]
    trip: "RoundTrip | None" = None
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return all(ok for _, ok, _ in self.checks)


def probe(config: BackendConfig) -> list[Check]:
    """The checks of an examination."""
    return list(examine(config).checks)


def examine(config: BackendConfig) -> Examination:
    """Key, server, model, and a round trip with a tool call; only the configuration where no server is asked."""
    quick = resolve(config.model_copy(update={"max_attempts": min(2, config.max_attempts), "max_wait_s": 5.0}))
    try:
        backend = OpenAIBackend(quick) if names_a_server(quick) else make_backend(quick)
    except BackendError as error:
        return Examination((("key", False, str(error)),))
    except ConfigError as error:
        return Examination((("configuration", False, str(error)),))
    try:
        if isinstance(backend, OpenAIBackend):
            return _examine_server(backend)
        if isinstance(backend, LocalBackend):
            return _examine_local(backend)
        return Examination((("configuration", True, backend.name),))
    finally:
        backend.close()


def _examine_local(backend: LocalBackend) -> Examination:
    try:
        server = backend.start()
    except AgentError as error:
        return Examination((("server", False, str(error)),))
    detail = f"{backend.gguf.path.name} ({backend.gguf.architecture}) answers at {server.base_url}"
    return _with_round_trip((("server", True, detail),), backend)


def _examine_server(backend: OpenAIBackend) -> Examination:
    try:
        known = backend.models()
    except BackendError as error:
        if error.kind in ("auth", "unreachable", "timeout"):
            return Examination((("key" if error.kind == "auth" else "server", False, str(error)),))
        known = ()
    listed = f"{len(known)} models listed" if known else "it lists no models"
    checks: list[Check] = [("server", True, f"{backend.public_url} answers; {listed}")]
    if known:
        checks.append(_model_check(backend.config.model, known))
    if not all(ok for _, ok, _ in checks):
        return Examination(tuple(checks))
    return _with_round_trip(tuple(checks), with_protocol(backend, backend.config))


def _with_round_trip(checks: tuple[Check, ...], backend: Backend) -> Examination:
    tried = round_trip(backend)
    detail = tried.problem or f"called and answered ({tried.protocol} protocol)"
    return Examination((*checks, ("tool call", not tried.problem, detail)), tried, dict(backend.describe()))


def _model_check(model: str, known: tuple[str, ...]) -> Check:
    if model in known:
        return ("model", True, model)
    near = difflib.get_close_matches(model, known, n=3, cutoff=0.3) or list(known[:3])
    return ("model", False, f"the server does not know {model}; it has {', '.join(near)}")


@dataclass(frozen=True)
class RoundTrip:
    """One call, its result and the reply to that, as in every turn of a run. `problem` is empty where it worked."""

    protocol: str
    problem: str
    seconds: float
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    replies: tuple[Reply, ...]


def round_trip(backend: Backend) -> RoundTrip:
    """Asks for one call with a given number and answers it. Never raises for what the model's side does wrong."""
    asked = Message(role="user", content=render_template("probe.j2", number=_NUMBER))
    began, replies, problem = time.monotonic(), [], ""
    try:
        replies.append(reply := backend.chat([asked], [_TOOL]))
        problem = _wrong(reply)
        if not problem:
            said = Message(role="assistant", content=reply.text, tool_calls=reply.calls, reasoning=reply.reasoning)
            results = [Message(role="tool", content="ok", tool_call_id=call.id) for call in reply.calls]
            replies.append(backend.chat([asked, said, *results], [_TOOL]))
    except AgentError as error:
        problem = str(error)
    costs = [reply.usage.cost_usd for reply in replies]
    return RoundTrip(
        protocol=str(backend.describe().get("tool_protocol", "native")),
        problem=problem,
        seconds=time.monotonic() - began,
        prompt_tokens=sum(reply.usage.prompt_tokens for reply in replies),
        completion_tokens=sum(reply.usage.completion_tokens for reply in replies),
        cost_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
        replies=tuple(replies),
    )


def _wrong(reply: Reply) -> str:
    right = [c for c in reply.calls if c.name == _TOOL.name and parse_object(c.arguments) == {"number": _NUMBER}]
    if right:
        return ""
    called = ", ".join(f"{call.name}({call.arguments})" for call in reply.calls)
    return f"the model answered with {reply.finish_reason}: {(called or reply.text)[:80]!r}"

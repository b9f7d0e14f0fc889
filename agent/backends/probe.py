"""Checks for `agent doctor`: is there a key, does the server answer, does it know the model, do tool calls work."""

import difflib

from agent.backends.base import Backend, Message, ToolSchema
from agent.backends.openai_api import OpenAIBackend
from agent.backends.registry import make_backend, with_protocol
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


def probe(config: BackendConfig) -> list[Check]:
    """(check, ok, detail) in the order in which things depend on each other; stops where the rest cannot work."""
    quick = config.model_copy(update={"max_attempts": min(2, config.max_attempts), "max_wait_s": 5.0})
    openai_named = config.name == "openai" or (config.name == "auto" and not config.script and config.model)
    try:
        backend = OpenAIBackend(quick) if openai_named else make_backend(quick)
    except BackendError as error:
        return [("key", False, str(error))]
    except ConfigError as error:
        return [("configuration", False, str(error))]
    try:
        if isinstance(backend, OpenAIBackend):
            return _probe_server(backend)
        return [("configuration", True, backend.name)]
    finally:
        backend.close()


def _probe_server(backend: OpenAIBackend) -> list[Check]:
    try:
        known = backend.models()
    except BackendError as error:
        if error.kind in ("auth", "unreachable", "timeout"):
            return [("key" if error.kind == "auth" else "server", False, str(error))]
        known = ()
    listed = f"{len(known)} models listed" if known else "it lists no models"
    checks: list[Check] = [("server", True, f"{backend.public_url} answers; {listed}")]
    if known:
        checks.append(_model_check(backend.config.model, known))
    if all(ok for _, ok, _ in checks):
        checks.append(_tool_check(with_protocol(backend, backend.config)))
    return checks


def _model_check(model: str, known: tuple[str, ...]) -> Check:
    if model in known:
        return ("model", True, model)
    near = difflib.get_close_matches(model, known, n=3, cutoff=0.3) or list(known[:3])
    return ("model", False, f"the server does not know {model}; it has {', '.join(near)}")


def _tool_check(backend: Backend) -> Check:
    """One call, its result, and the reply to that: the round trip of every turn of a run."""
    asked = Message(role="user", content=render_template("probe.j2", number=_NUMBER))
    try:
        reply = backend.chat([asked], [_TOOL])
        right = [c for c in reply.calls if c.name == _TOOL.name and parse_object(c.arguments) == {"number": _NUMBER}]
        if not right:
            return ("tool call", False, f"the model answered with {reply.finish_reason}: {reply.text[:80]!r}")
        said = Message(role="assistant", content=reply.text, tool_calls=reply.calls)
        results = [Message(role="tool", content="ok", tool_call_id=call.id) for call in reply.calls]
        backend.chat([asked, said, *results], [_TOOL])
    except AgentError as error:
        return ("tool call", False, str(error))
    return ("tool call", True, f"called and answered ({backend.describe().get('tool_protocol', 'native')} protocol)")

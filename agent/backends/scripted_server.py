"""A real OpenAI-compatible HTTP server on loopback whose answers are scripted; it records what it was asked.

    python -m agent.backends.scripted_server --script examples/NAME/turns.md --port 0 [--faults 429,malformed,overflow]

serves a hand-written script as if a model wrote it, in the notation that a request asks for (native calls, fenced text,
one JSON object), and prints the base URL. It is as strict as the strictest servers: a history with malformed arguments
or unpaired calls is refused with 400. It is no language model and checks no tokens.
"""

import argparse
import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Literal

from agent.backends.fences import render
from agent.backends.sanitize import dump_object, parse_object
from agent.backends.script import Script, read_script
from agent.backends.scripted_steps import (
    Step,
    dropped,
    empty_choices,
    error,
    overflow,
    rate_limited,
    reply,
    stream_events,
    without_ids,
)
from agent.errors import AgentError

Responder = Callable[[Mapping[str, Any]], Step]
Notation = Literal["native", "text", "json"]
FAULTS: Final = ("429", "500", "drop", "empty", "malformed", "length", "overflow")
_FAULT_TEXT: Final = "fault:"


@dataclass(frozen=True)
class Recorded:
    """One request: header names are lower case, `body` is {} for a GET."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


class ScriptedServer:
    """Serves `steps` in order, or what a function makes of each request; use it in a `with` block.

    `refuse` names request fields that get a 400, `refuse_tools` does so for tools, `api_key` turns other keys away.
    """

    def __init__(
        self,
        steps: Iterable[Step] | Responder,
        *,
        models: Sequence[str] = ("scripted",),
        api_key: str | None = None,
        refuse: Sequence[str] = (),
        refuse_tools: bool = False,
        port: int = 0,
    ) -> None:
        self.requests: list[Recorded] = []
        self.models = tuple(models)
        self._api_key = api_key
        self._refuse = tuple(refuse)
        self._refuse_tools = refuse_tools
        self._respond = steps if callable(steps) else _in_order(steps)
        self._lock = threading.Lock()
        self._http = _Http(("127.0.0.1", port), _handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @property
    def chats(self) -> list[Recorded]:
        """The chat requests among the recorded ones."""
        return [request for request in self.requests if request.path.endswith("/chat/completions")]

    def __enter__(self) -> "ScriptedServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def answer(self, request: Recorded) -> Step:
        """What to send back; checks come in the order in which real servers make them."""
        with self._lock:
            self.requests.append(request)
            return self._refusal(request) or self._respond(request.body)

    def _refusal(self, request: Recorded) -> Step | None:
        if self._api_key is not None and request.headers.get("authorization") != f"Bearer {self._api_key}":
            return error(401, "Incorrect API key provided", code="invalid_api_key")
        if request.path == "/v1/models":
            return Step({"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]})
        if request.path != "/v1/chat/completions":
            return error(404, "Not Found")
        body = request.body
        if body.get("model") not in self.models:
            return error(404, f"The model `{body.get('model')}` does not exist", code="model_not_found")
        for name in self._refuse:
            if name in body:
                return error(400, f"Unsupported parameter: '{name}' is not supported with this model.")
        if self._refuse_tools and body.get("tools"):
            return error(400, f"{body['model']} does not support tools")
        problems = history_problems(body.get("messages", ()))
        return error(400, f"invalid messages: {'; '.join(problems)}") if problems else None


def _in_order(steps: Iterable[Step]) -> Responder:
    waiting = iter(steps)
    return lambda _: next(waiting, error(400, "the scripted server has no further step"))


def history_problems(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a strict server finds wrong: arguments that are no JSON object, calls without their one result, no text."""
    problems: list[str] = []
    open_ids: list[str] = []
    for index, message in enumerate(messages):
        role = message.get("role")
        if role == "tool":
            if message.get("tool_call_id") not in open_ids:
                problems.append(f"message {index} answers no open call")
            else:
                open_ids.remove(str(message["tool_call_id"]))
            continue
        if open_ids:
            problems.append(f"message {index} comes before the results of {open_ids}")
        open_ids = [str(call["id"]) for call in message.get("tool_calls") or ()]
        if len(set(open_ids)) != len(open_ids):
            problems.append(f"message {index} repeats a call id")
        for call in message.get("tool_calls") or ():
            if parse_object(call["function"]["arguments"]) is None:
                problems.append(f"message {index} has arguments that are no JSON object")
        if not message.get("content") and not message.get("tool_calls"):
            problems.append(f"message {index} is empty")
    return [*problems, *([f"no result for {open_ids}"] if open_ids else [])]


def serve_script(script: Script, *, faults: Sequence[str] = ()) -> Responder:
    """Turn N for a history with N-1 assistant messages; `faults` are NAME or NAME@TURN, the k-th strikes at turn k.

    429, 500, drop, empty strike once per turn; malformed and length cost a reply of their own; overflow lasts.
    """
    planned = [_fault(text, k) for k, text in enumerate(faults, 1)]
    struck: set[int] = set()

    def respond(body: Mapping[str, Any]) -> Step:
        said = [m for m in body.get("messages", ()) if m.get("role") == "assistant"]
        done = sum(not str(m.get("content") or "").startswith(_FAULT_TEXT) for m in said)
        notation: Notation = "native" if body.get("tools") else "json" if body.get("response_format") else "text"
        for index, (name, turn) in enumerate(planned):
            due = done + 1 >= turn if name == "overflow" else done + 1 == turn and index not in struck
            if due:
                struck.add(index)
                return _fault_step(name, notation)
        return _turn_step(script, done, notation)

    return respond


def _fault(text: str, position: int) -> tuple[str, int]:
    name, at, turn = text.strip().partition("@")
    if name not in FAULTS or (at and not turn.isdecimal()):
        raise ValueError(f"{text!r} is no fault: NAME or NAME@TURN with NAME in {', '.join(FAULTS)}")
    return name, int(turn) if at else position


def _fault_step(name: str, notation: Notation) -> Step:
    if name == "malformed" and notation == "json":
        return reply(f'{_FAULT_TEXT} {{"why": "", "actions": [')
    if name == "malformed" and notation == "text":
        return reply(f"{_FAULT_TEXT} a header that cannot be read\n\n```action bash ls -l\n```")
    steps: Mapping[str, Callable[[], Step]] = {
        "429": rate_limited,
        "500": lambda: error(500, "internal error"),
        "drop": dropped,
        "empty": empty_choices,
        "overflow": overflow,
        "malformed": lambda: reply(_FAULT_TEXT, [("bash", '{"command": "ls')], id_prefix="fault"),
        "length": lambda: reply(_FAULT_TEXT, [("bash", '{"command": "rm -r kern')], finish="length"),
    }
    return steps[name]()


def _turn_step(script: Script, index: int, notation: Notation) -> Step:
    if index >= len(script.turns):
        return reply("The script has no further turns.")
    turn = script.turns[index]
    if notation == "native":
        return reply(turn.text, list(turn.actions), id_prefix=f"turn{index + 1}")
    if notation == "json":
        actions = [{"name": name, "arguments": values} for name, values in turn.actions]
        return reply(dump_object({"why": turn.text, "actions": actions}))
    return reply("\n\n".join(part for part in (turn.text, *(render(*action) for action in turn.actions)) if part))


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is a case under test; anything else is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _handler(server: ScriptedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self._answer(json.loads(data))

        def _answer(self, body: Mapping[str, Any]) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            step = server.answer(Recorded(self.path, headers, body))
            time.sleep(step.delay_s)
            if step.cut == "before":
                self._hang_up()
                return
            content_type, data = encode(step, body)
            self.send_response(step.status)
            for name, value in step.headers:
                self.send_header(name, value)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if step.cut else data)
            if step.cut:
                self._hang_up()

        def _hang_up(self) -> None:
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, format: str, *args: Any) -> None:
            """Requests are recorded, not printed."""

    return Handler


def encode(step: Step, request: Mapping[str, Any]) -> tuple[str, bytes]:
    """(content type, body) of a step as this request asked for it. Lone surrogates travel as JSON escapes."""
    if isinstance(step.body, str):
        return step.content_type, step.body.encode()
    body = step.body if request.get("return_token_ids") or not step.streams else without_ids(step.body)
    if request.get("stream") and step.streams:
        usage = bool((request.get("stream_options") or {}).get("include_usage"))
        return "text/event-stream", "".join(stream_events(body, usage=usage)).encode()
    return step.content_type, json.dumps(body).encode()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until interrupted; 2 for a script or fault that cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m agent.backends.scripted_server")
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--faults", default="", help=f"comma-separated NAME or NAME@TURN of {', '.join(FAULTS)}")
    parser.add_argument("--model", default="scripted")
    parser.add_argument("--refuse-tools", action="store_true")
    options = parser.parse_args(arguments)
    try:
        respond = serve_script(read_script(options.script), faults=[f for f in options.faults.split(",") if f])
    except (AgentError, ValueError) as problem:
        sys.stderr.write(f"{problem}\n")
        return 2
    models = (options.model,)
    # Both end it, also where a shell has started it in the background (such a process ignores SIGINT otherwise).
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with ScriptedServer(respond, models=models, refuse_tools=options.refuse_tools, port=options.port) as server:
        sys.stdout.write(f"{server.base_url}\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())

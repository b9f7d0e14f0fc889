"""Stand-ins that really work: a sandbox that runs commands in a folder, and a backend with given turns."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.backends.base import Message, Reply, ToolCall, ToolSchema, Usage
from agent.backends.replay import ScriptEnd
from agent.backends.sanitize import dump_object
from agent.errors import SandboxError
from agent.sandbox.base import ExecResult, Heard, Output
from agent.sandbox.environment import QUIET

Turn = Reply | Exception | Callable[[Sequence[Message]], Reply]


class LocalSandbox:
    """Runs commands as processes of this machine with `workspace` as /workspace; a process group per call."""

    kind = "local"
    python = sys.executable

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.closed = False
        self._process: subprocess.Popen[bytes] | None = None

    def describe(self) -> str:
        return "local: processes of this machine"

    def exec(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        cwd: str | None = None,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        heard: Heard | None = None,
    ) -> ExecResult:
        if self.closed:
            raise SandboxError("the sandbox was closed")
        began = time.monotonic()
        with subprocess.Popen(
            list(argv),
            cwd=self.workspace,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Not the tester's own HOME: a login shell would run its start-up files, and a test may kill it there.
            env={**os.environ, **QUIET, "HOME": str(self.workspace), **(env or {})},
            start_new_session=True,
        ) as process:
            self._process = process
            try:
                out, err = process.communicate(stdin, timeout=timeout_s)
                timed_out = False
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                out, err = process.communicate()
                timed_out = True
        if self.closed:
            raise SandboxError("the sandbox was closed")
        if heard is not None:
            heard(out)
        if log is not None:
            log.write_bytes(out + err)
        code = 124 if timed_out else process.returncode
        return ExecResult(
            "timeout" if timed_out else "exited",
            code if code >= 0 else 128 - code,
            shorten(out),
            shorten(err),
            time.monotonic() - began,
            log,
        )

    def read(self, path: str, *, limit: int) -> bytes:
        with self._place(path).open("rb") as file:
            return file.read(limit)

    def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        target = self._place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.new")
        temporary.write_bytes(data)
        temporary.replace(target)

    def close(self) -> None:
        self.closed = True
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def _place(self, path: str) -> Path:
        place = (self.workspace / path.removeprefix("/workspace/")).resolve()
        if not place.is_relative_to(self.workspace.resolve()):
            raise PermissionError(path)
        return place


def shorten(data: bytes, keep: int = 65536) -> Output:
    if len(data) <= 2 * keep:
        return Output(data, b"", 0)
    return Output(data[:keep], data[-keep:], len(data) - 2 * keep)


class Turns:
    """A backend that gives turn after turn: replies, exceptions to raise, or functions of the messages."""

    name = "turns"

    def __init__(self, *turns: Turn) -> None:
        self.turns = turns
        self.seen: list[list[Message]] = []

    def chat(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> Reply:
        self.seen.append(list(messages))
        said = sum(message.role == "assistant" for message in messages)
        if said >= len(self.turns):
            raise ScriptEnd(f"{len(self.turns)} turns were given")
        turn = self.turns[said]
        if isinstance(turn, Exception):
            raise turn
        return turn if isinstance(turn, Reply) else turn(messages)

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "turns"}

    def close(self) -> None:
        pass


def call(name: str, /, id: str = "", **arguments: Any) -> ToolCall:
    return ToolCall(id=id, name=name, arguments=dump_object(arguments))


def reply(*calls: ToolCall, tokens: int = 10, cost_usd: float | None = 0.0, **fields: Any) -> Reply:
    usage = Usage(prompt_tokens=tokens, completion_tokens=tokens, cost_usd=cost_usd)
    return Reply(calls=calls, finish_reason=fields.pop("finish_reason", "tool_calls"), usage=usage, **fields)


def bash(command: str, **arguments: Any) -> Reply:
    return reply(call("bash", command=command, **arguments))

"""One child process on the host: started, read without blocking, ended with its whole process group in every case.

Covers: output that never stops, a background child that keeps stdout open, a child that ignores signals, a child that
does not read its stdin, an exception (^C) while waiting. Not covered: a descendant that left the process group; the
caller's `end_rest` must reach those (a pid namespace or a cgroup does).
"""

import contextlib
import errno
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.errors import SandboxError
from agent.sandbox.base import ExecStatus
from agent.sandbox.capture import CommandOutput

KILL_AFTER_S: Final = 5.0
HOST_MARGIN_S: Final = 10.0
DRAIN_S: Final = 0.5
CHUNK: Final = 1 << 16
NOT_STARTED: Final = 126
TIMED_OUT: Final = 124


class Running:
    """The child that runs now, if any, so that another thread can end it; a reaped child's id is never signalled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def started(self, child: "subprocess.Popen[bytes]") -> None:
        with self._lock:
            self._child = child

    def reap(self) -> None:
        with self._lock:
            if self._child is not None:
                self._child.wait()
            self._child = None

    def kill(self) -> None:
        with self._lock, contextlib.suppress(ProcessLookupError, PermissionError):
            if self._child is not None:
                os.killpg(self._child.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Finished:
    """How a child ended; `signal` is None unless a signal killed it, `overdue` when the host's deadline did."""

    exit_code: int
    signal: int | None
    overdue: bool
    duration_s: float


def with_timeout(argv: Sequence[bytes], timeout_s: float) -> list[bytes]:
    """argv under coreutils' timeout: TERM after timeout_s, KILL 5 s later. The first of the two deadlines."""
    return [b"timeout", b"-k", b"%g" % KILL_AFTER_S, f"{max(timeout_s, 0.001):f}".encode(), *argv]


def host_deadline(timeout_s: float) -> float:
    """When the host stops to rely on the deadline inside the sandbox, in seconds from the start."""
    return timeout_s + KILL_AFTER_S + HOST_MARGIN_S


def status_of(exit_code: int, *, duration_s: float, timeout_s: float, overdue: bool, oom: bool) -> ExecStatus:
    """Tell apart what shell exit codes mix up: 124, 137 and 143 mean a timeout only when the time was really over."""
    late = duration_s >= timeout_s
    if overdue or (late and exit_code in (TIMED_OUT, 128 + signal.SIGKILL, 128 + signal.SIGTERM)):
        return "timeout"
    return "oom" if oom and exit_code != 0 else "exited"


def encode_argument(text: str) -> bytes:
    """Bytes as given: undecodable bytes come back as they were, lone surrogates as three bytes; nothing raises."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def unusable(argv: Sequence[str]) -> str:
    """Why the kernel could not take these arguments, or an empty string."""
    if not argv:
        return "no command given"
    if any("\0" in argument for argument in argv):
        return "the command holds a NUL byte, which no program can be given"
    return ""


def run_process(
    argv: Sequence[bytes],
    *,
    env: Mapping[str, str],
    cwd: Path | None,
    stdin: bytes | None,
    deadline_s: float,
    output: CommandOutput,
    end_rest: Callable[[], None] = lambda: None,
    pass_fds: Sequence[int] = (),
    running: Running | None = None,
) -> Finished:
    """Run argv to its end or to `deadline_s`, whichever is first. Raises SandboxError when it cannot be started."""
    began = time.monotonic()
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={encode_argument(k): encode_argument(v) for k, v in env.items()},
            cwd=cwd,
            start_new_session=True,
            pass_fds=tuple(pass_fds),
        )
    except OSError as error:
        return _not_started(error, output)
    running = running or Running()
    running.started(child)
    waiter = _Waiter(child, stdin, output, end_rest, running)
    try:
        overdue = waiter.run(began + deadline_s)
    finally:
        waiter.end()
    code = child.returncode
    return Finished(
        exit_code=code if code >= 0 else 128 - code,
        signal=-code if code < 0 else None,
        overdue=overdue,
        duration_s=time.monotonic() - began,
    )


def _not_started(error: OSError, output: CommandOutput) -> Finished:
    if error.errno != errno.E2BIG:
        raise SandboxError(f"cannot start a command: {error}", hint="check the sandbox with `agent doctor`") from error
    output.add("stderr", b"the command is longer than the system allows; put it into a file\n")
    return Finished(NOT_STARTED, None, False, 0.0)


class _Waiter:
    """The loop around one child: feeds stdin, reads both streams, watches for the exit."""

    def __init__(
        self,
        child: "subprocess.Popen[bytes]",
        stdin: bytes | None,
        output: CommandOutput,
        end_rest: Callable[[], None],
        running: Running,
    ) -> None:
        self._running = running
        self._child = child
        self._output = output
        self._end_rest = end_rest
        self._to_send = memoryview(stdin or b"")
        self._exit = os.pidfd_open(child.pid)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._exit, selectors.EVENT_READ, "exit")
        for name in ("stdout", "stderr"):
            self._watch(getattr(child, name), selectors.EVENT_READ, name)
        if child.stdin is not None:
            self._watch(child.stdin, selectors.EVENT_WRITE, "stdin")

    def run(self, deadline: float) -> bool:
        """True when the deadline came first."""
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return True
            if self._step(left):
                return False

    def end(self) -> None:
        """Kill what is left, then read what the pipes still hold. A zombie keeps the group's id from being reused."""
        self._running.kill()
        self._end_rest()
        try:
            self._drain()
        finally:
            self._running.reap()
            self._selector.close()
            os.close(self._exit)
            for stream in (self._child.stdin, self._child.stdout, self._child.stderr):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()

    def _watch(self, stream: Any, event: int, name: str) -> None:
        os.set_blocking(stream.fileno(), False)
        self._selector.register(stream, event, name)

    def _step(self, timeout: float) -> bool:
        exited = False
        for key, _ in self._selector.select(timeout):
            if key.data == "exit":
                exited = True
            elif key.data == "stdin":
                self._feed(key.fileobj)
            else:
                self._take(key.fileobj, key.data)
        return exited

    def _take(self, stream: Any, name: str) -> None:
        try:
            data = os.read(stream.fileno(), CHUNK)
        except BlockingIOError:
            return
        if data:
            self._output.add(name, data)
        else:
            self._selector.unregister(stream)

    def _feed(self, stream: Any) -> None:
        try:
            sent = os.write(stream.fileno(), self._to_send[:CHUNK]) if self._to_send else 0
            self._to_send = self._to_send[sent:]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._to_send = memoryview(b"")
        if not self._to_send:
            self._selector.unregister(stream)
            stream.close()

    def _drain(self) -> None:
        """Until end of file, or DRAIN_S when a process out of reach still holds a pipe."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(self._exit)
        with contextlib.suppress(KeyError, ValueError, TypeError):
            self._selector.unregister(self._child.stdin)  # type: ignore[arg-type]
        deadline = time.monotonic() + DRAIN_S
        while self._selector.get_map() and (left := deadline - time.monotonic()) > 0:
            self._step(left)

"""PID 1 of a Docker sandbox: takes commands on its stdin, runs one at a time, sends output and results on its stdout.

Runs inside the container as `python -I -S runner.py` with the rights of the model's own commands; the host imports only
its constants. Standard library only, and no import of this package.

Covers: as PID 1 of its namespace it cannot be signalled by anything inside (the kernel drops even SIGKILL), and as a
process that is not dumpable its memory and descriptors cannot be opened by another process of the same user, so no
command can end it or forge what it reports. After each command it kills every other process of the namespace: nothing
of a command outlives it. When the host's end of stdin closes (also by kill -9) it exits, and the container with it.
Not covered: what a command leaves in /workspace and /tmp, which the next command sees; and the engine's administrators.

Frames to the runner: 4 bytes length, JSON {argv, env, cwd, timeout_s, stdin}; then `stdin` bytes. A length of 0 cancels
the running command. Frames from the runner: 1 byte kind, 4 bytes length, payload. Strings in JSON are bytes as Latin-1.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import struct
import sys
import time
from typing import Any, Final

HELLO: Final = b"h"
STDOUT: Final = b"o"
STDERR: Final = b"e"
RESULT: Final = b"r"
FRAME: Final = struct.Struct(">cI")
LENGTH: Final = struct.Struct(">I")
HOME: Final = "/tmp/home"
KILL_AFTER_S: Final = 5.0
CHUNK: Final = 1 << 16
CHILD_OOM_SCORE: Final = 500
OOM_COUNTERS: Final = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
PR_SET_DUMPABLE: Final = 4


class HostGone(Exception):
    """The host closed its end."""


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    # Python's own handler would make PID 1 reachable for this one signal.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    wake = wakeup_pipe()
    with contextlib.suppress(OSError):
        os.mkdir(HOME, 0o700)  # noqa: PTH102 (pathlib would double the start-up time)
    try:
        send(HELLO, json.dumps({"pid": os.getpid(), "uid": os.getuid()}).encode())
        while True:
            (length,) = LENGTH.unpack(receive(LENGTH.size))
            if length:
                request = json.loads(receive(length))
                stdin = receive(request["stdin"])
                send(RESULT, json.dumps(Command(request, stdin, wake).run()).encode())
    except (HostGone, BrokenPipeError):
        os._exit(0)


def wakeup_pipe() -> int:
    """A descriptor that becomes readable whenever a child ends."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def send(kind: bytes, payload: bytes) -> None:
    data = memoryview(FRAME.pack(kind, len(payload)) + payload)
    while data:
        data = data[os.write(1, data) :]


def receive(count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = os.read(0, min(count - len(parts), 1 << 20))
        if not part:
            raise HostGone
        parts += part
    return bytes(parts)


def oom_kills() -> int:
    """How many processes of this container the kernel has killed for memory."""
    for path in OOM_COUNTERS:
        with contextlib.suppress(OSError), open(path, encoding="ascii") as file:  # noqa: PTH123
            for line in file:
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
    return 0


class Command:
    """One command from start to end."""

    def __init__(self, request: dict[str, Any], stdin: bytes, wake: int) -> None:
        self.argv = [text.encode("latin-1") for text in request["argv"]]
        self.env = {k.encode("latin-1"): v.encode("latin-1") for k, v in request["env"].items()}
        self.cwd = request["cwd"].encode("latin-1")
        self.timeout_s = float(request["timeout_s"])
        self.stdin = memoryview(stdin)
        self.wake = wake
        self.pid = 0
        self.status: int | None = None
        self.streams: dict[int, bytes] = {}
        self.feed = -1

    def run(self) -> dict[str, Any]:
        before, began = oom_kills(), time.monotonic()
        try:
            self.start()
        except OSError as error:
            self.close_pipes()
            send(STDERR, f"the command could not be started: {error.strerror}\n".encode())
            return {"code": 126, "timed_out": False, "oom": False, "seconds": 0.0}
        timed_out = self.wait(began + self.timeout_s)
        end_everything()
        self.drain()
        return {
            "code": os.waitstatus_to_exitcode(self.status) if self.status is not None else -signal.SIGKILL,
            "timed_out": timed_out,
            "oom": oom_kills() > before,
            "seconds": time.monotonic() - began,
        }

    def start(self) -> None:
        stdin, self.feed = os.pipe()
        out, stdout = os.pipe()
        err, stderr = os.pipe()
        self.streams = {out: STDOUT, err: STDERR}
        try:
            self.pid = os.fork()
            if self.pid == 0:
                self.become(stdin, stdout, stderr)
        finally:
            for descriptor in (stdin, stdout, stderr):
                os.close(descriptor)
        os.set_blocking(self.feed, False)

    def become(self, stdin: int, stdout: int, stderr: int) -> None:
        """In the child: turn into the command. Never returns."""
        code = 126
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            for descriptor, wanted in ((stdin, 0), (stdout, 1), (stderr, 2)):
                os.dup2(descriptor, wanted)
            os.closerange(3, 4096)
            # The kernel then kills a command rather than this process when memory runs out.
            with contextlib.suppress(OSError):
                adjust = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
                os.write(adjust, str(CHILD_OOM_SCORE).encode())
                os.close(adjust)
            os.chdir(self.cwd)
            os.execvpe(self.argv[0], self.argv, self.env)
        except FileNotFoundError as error:
            code, name = (126, self.cwd) if error.filename == self.cwd else (127, self.argv[0])
            os.write(2, name + b": not found\n")
        except BaseException as error:  # noqa: BLE001
            os.write(2, f"the command could not be started: {error}\n".encode("utf-8", "replace"))
        finally:
            os._exit(code)

    def wait(self, deadline: float) -> bool:
        """Until the command itself has ended; True when its time was over first."""
        timed_out = False
        while self.status is None:
            left = deadline - time.monotonic()
            if left <= 0:
                if timed_out:
                    kill_all(signal.SIGKILL)
                else:
                    self.terminate()
                timed_out, deadline = True, time.monotonic() + KILL_AFTER_S
                continue
            self.step(left)
        return timed_out

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGTERM)
            os.killpg(self.pid, signal.SIGCONT)

    def step(self, timeout: float) -> None:
        readers = [0, self.wake, *self.streams]
        writers = [self.feed] if self.feed >= 0 else []
        ready, writable, _ = select.select(readers, writers, [], timeout)
        for descriptor in ready:
            if descriptor == self.wake:
                self.reap()
            elif descriptor == 0:
                self.cancel()
            else:
                self.forward(descriptor)
        if writable:
            self.send_stdin()

    def cancel(self) -> None:
        """Only a cancel frame or the end of the host can arrive while a command runs."""
        receive(LENGTH.size)
        kill_all(signal.SIGKILL)

    def reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake, 4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.pid:
                    self.status = status

    def forward(self, descriptor: int) -> None:
        data = os.read(descriptor, CHUNK)
        if data:
            send(self.streams[descriptor], data)
        else:
            os.close(descriptor)
            del self.streams[descriptor]

    def send_stdin(self) -> None:
        try:
            self.stdin = self.stdin[os.write(self.feed, self.stdin[:CHUNK]) if self.stdin else 0 :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.stdin = memoryview(b"")
        if not self.stdin:
            os.close(self.feed)
            self.feed = -1

    def close_pipes(self) -> None:
        for descriptor in (*self.streams, *([self.feed] if self.feed >= 0 else ())):
            os.close(descriptor)

    def drain(self) -> None:
        """What the pipes still hold; all writers are dead, so every pipe ends."""
        if self.feed >= 0:
            os.close(self.feed)
            self.feed = -1
        for descriptor in list(self.streams):
            while descriptor in self.streams:
                self.forward(descriptor)


def kill_all(number: int) -> None:
    """Every process of the namespace but this one; the kernel does it in one step, forks included."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(-1, number)


def end_everything() -> None:
    kill_all(signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


if __name__ == "__main__":
    if os.getpid() != 1:
        sys.exit("this program kills every process that it can reach; it only runs as PID 1 of a container")
    main()

"""The host's end of the conversation with runner.py: frames over the attached streams of one container."""

import contextlib
import json
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from agent.sandbox import runner
from agent.sandbox.capture import Capture, CommandOutput
from agent.sandbox.process import encode_argument

ENGINE_HEADER: Final = struct.Struct(">BxxxI")
ENGINE_STDERR: Final = 2
RECEIVE: Final = 1 << 18
LARGEST_FRAME: Final = 1 << 24
CANCEL_S: Final = 10.0
NAMES: Final = {runner.STDOUT: "stdout", runner.STDERR: "stderr"}


class ChannelClosed(Exception):
    """The container's end is gone, or what came from it makes no sense."""


class Overdue(Exception):
    """No answer before the host's deadline."""


class Channel:
    """One request at a time. `errors` keeps what PID 1 itself printed on stderr, for a post-mortem."""

    def __init__(self, attached: Any) -> None:
        # docker-py wraps the connection; deadlines need the socket itself.
        self._attached = attached
        self._socket: socket.socket = getattr(attached, "_sock", attached)
        self._socket.setblocking(False)
        self._raw = bytearray()
        self._frames = bytearray()
        self._lock = threading.Lock()
        self._busy = False
        self._closed = False
        self.errors = Capture(head_bytes=4096, tail_bytes=4096)

    def hello(self, *, timeout_s: float) -> dict[str, Any]:
        """Wait for PID 1 to be ready."""
        with self._in_use():
            for kind, payload in self._receive(time.monotonic() + timeout_s):
                if kind == runner.HELLO:
                    return dict(json.loads(payload))
        raise ChannelClosed

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        stdin: bytes,
        timeout_s: float,
        host_deadline_s: float,
        output: CommandOutput,
    ) -> dict[str, Any]:
        """The runner's result. Raises ChannelClosed and Overdue. Another exception (^C) cancels the command first."""
        request = {
            "argv": [_latin(argument) for argument in argv],
            "env": {_latin(k): _latin(v) for k, v in env.items()},
            "cwd": _latin(cwd),
            "timeout_s": timeout_s,
            "stdin": len(stdin),
        }
        deadline = time.monotonic() + host_deadline_s
        header = json.dumps(request).encode("ascii")
        with self._in_use():
            try:
                self._send(runner.LENGTH.pack(len(header)) + header + stdin, deadline)
            except BaseException:
                # Half a request cannot be taken back.
                self.close()
                raise
            try:
                return self._result(deadline, output)
            except (ChannelClosed, Overdue):
                raise
            except BaseException:
                self._cancel()
                raise

    def close(self) -> None:
        """From any thread: a `run` that waits in another one ends with ChannelClosed."""
        with self._lock:
            self._closed = True
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            if not self._busy:
                self._release()

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        """Keeps the descriptor open: were its number reused while a thread waits on it, that thread would not wake."""
        with self._lock:
            if self._closed:
                raise ChannelClosed
            self._busy = True
        try:
            yield
        finally:
            with self._lock:
                self._busy = False
                if self._closed:
                    self._release()

    def _release(self) -> None:
        for end in (self._attached, self._socket):
            with contextlib.suppress(OSError):
                end.close()

    def _result(self, deadline: float, output: CommandOutput | None) -> dict[str, Any]:
        for kind, payload in self._receive(deadline):
            if kind == runner.RESULT:
                return dict(json.loads(payload))
            if output is not None and kind in NAMES:
                output.add(NAMES[kind], payload)
        raise ChannelClosed

    def _cancel(self) -> None:
        deadline = time.monotonic() + CANCEL_S
        try:
            self._send(runner.LENGTH.pack(0), deadline)
            self._result(deadline, None)
        except (ChannelClosed, Overdue):
            self.close()

    def _send(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            self._wait([], [self._socket], deadline)
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise ChannelClosed from error

    def _receive(self, deadline: float) -> Iterator[tuple[bytes, bytes]]:
        while True:
            yield from self._whole_frames()
            self._wait([self._socket], [], deadline)
            try:
                data = self._socket.recv(RECEIVE)
            except BlockingIOError:
                continue
            except OSError as error:
                raise ChannelClosed from error
            if not data:
                raise ChannelClosed
            self._raw += data
            self._unwrap()

    def _wait(self, readers: list[socket.socket], writers: list[socket.socket], deadline: float) -> None:
        try:
            ready = select.select(readers, writers, [], max(0.0, deadline - time.monotonic()))
        except (OSError, ValueError) as error:
            raise ChannelClosed from error
        if not any(ready):
            raise Overdue

    def _unwrap(self) -> None:
        """Take the engine's own headers off; they say which of the two streams the bytes came from."""
        position = 0
        while len(self._raw) - position >= ENGINE_HEADER.size:
            stream, length = ENGINE_HEADER.unpack_from(self._raw, position)
            end = position + ENGINE_HEADER.size + length
            if end > len(self._raw):
                break
            body = memoryview(self._raw)[position + ENGINE_HEADER.size : end]
            if stream == ENGINE_STDERR:
                self.errors.add(bytes(body))
            else:
                self._frames += body
            body.release()
            position = end
        del self._raw[:position]

    def _whole_frames(self) -> Iterator[tuple[bytes, bytes]]:
        position = 0
        try:
            while len(self._frames) - position >= runner.FRAME.size:
                kind, length = runner.FRAME.unpack_from(self._frames, position)
                if length > LARGEST_FRAME:
                    raise ChannelClosed
                end = position + runner.FRAME.size + length
                if end > len(self._frames):
                    break
                payload = bytes(self._frames[position + runner.FRAME.size : end])
                position = end
                yield kind, payload
        finally:
            del self._frames[:position]


def _latin(text: str) -> str:
    return encode_argument(text).decode("latin-1")

"""Output of one command: the first and last bytes in memory, all of it in a log on disk.

Covers: constant memory whatever a command prints, a log that ends at a stated size. Not covered: the order in which
stdout and stderr were written; the log has the order in which they were read.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from agent.errors import SandboxError
from agent.sandbox.base import Heard, Output

HEAD_BYTES: Final = 256 << 10
TAIL_BYTES: Final = 256 << 10


class Capture:
    """The first `head_bytes` and the last `tail_bytes` of a stream."""

    def __init__(self, *, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, data: bytes) -> None:
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # Cutting only at twice the size makes the copying amortised.
        if len(self._tail) > 2 * self._tail_bytes:
            self._cut_tail()

    def output(self) -> Output:
        self._cut_tail()
        head, tail = bytes(self._head), bytes(self._tail)
        if not self._dropped:
            return Output(head, tail, 0)
        whole_head, whole_tail = _whole_characters(head, tail)
        lost = len(head) - len(whole_head) + len(tail) - len(whole_tail)
        return Output(whole_head, whole_tail, self._dropped + lost)

    def _cut_tail(self) -> None:
        excess = len(self._tail) - self._tail_bytes
        if excess > 0:
            del self._tail[:excess]
            self._dropped += excess


class CommandOutput:
    """Both streams of one command, and its log. Use as a context manager: the log is complete when it closes.

    Raises SandboxError when the log cannot be written (disk full, read-only folder).
    """

    def __init__(
        self, log: Path | None, *, log_bytes: int, head_bytes: int = HEAD_BYTES, heard: Heard | None = None
    ) -> None:
        self._heard = heard
        self.stdout = Capture(head_bytes=head_bytes)
        self.stderr = Capture()
        self.log = log
        self._room = log_bytes
        self._unlogged = 0
        self._file: IO[bytes] | None = None
        if log is not None:
            self._guard(lambda: self._open(log))

    def add(self, stream: str, data: bytes) -> None:
        (self.stdout if stream == "stdout" else self.stderr).add(data)
        if stream == "stdout" and self._heard is not None:
            self._heard(data)
        if self._file is not None:
            written = data[: self._room]
            self._room -= len(written)
            self._unlogged += len(data) - len(written)
            if written:
                self._guard(lambda: self._write(written))

    def __enter__(self) -> "CommandOutput":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is None:
            return
        file, self._file = self._file, None
        with contextlib.suppress(OSError), file:
            if self._unlogged:
                file.write(f"\n[the log ends here: {self._unlogged} more bytes were not kept]\n".encode())

    def _open(self, log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._file = log.open("wb", buffering=0)

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]

    def _guard(self, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as error:
            if self._file is not None:
                self._file.close()
                self._file = None
            raise SandboxError(
                f"cannot write the log {self.log}: {error.strerror}", hint="free disk space or choose another --output"
            ) from error


def _whole_characters(head: bytes, tail: bytes) -> tuple[bytes, bytes]:
    """Without the pieces of UTF-8 characters that the cut left at the end of head and the start of tail."""
    for back in range(1, min(4, len(head)) + 1):
        byte = head[-back]
        if byte & 0xC0 == 0x80:
            continue
        width = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        if width > back:
            head = head[:-back]
        break
    start = 0
    while start < min(3, len(tail)) and tail[start] & 0xC0 == 0x80:
        start += 1
    return head, tail[start:]

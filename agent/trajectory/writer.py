"""Appends events to events.jsonl: one line each, flushed and fsynced before the caller goes on.

Covers: kill -9 and power loss after `append` returned lose nothing; a disk that fills up leaves every earlier event
intact (the torn tail is cut off) and raises RecordError. Does not cover: two writers; the run folder's lock does.
"""

import errno
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from agent.errors import RecordError
from agent.trajectory.events import Event
from agent.trajectory.reader import read_lines

FULL_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
E = TypeVar("E", bound=Event)


class EventWriter:
    """The only way events come into being: gives them their `seq` and `t`, records them, then tells `on_event`."""

    def __init__(self, path: Path, *, on_event: Callable[[Event], None] | None = None) -> None:
        """Continues an existing log behind its last complete line; a torn tail is cut off."""
        self._path = path
        self._on_event = on_event
        self._seq, self._size = 0, 0
        for line in read_lines(path):
            self._seq, self._size = line.event.seq + 1, line.end
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.ftruncate(self._fd, self._size)
        except OSError as error:
            raise record_error(path, error) from error

    def append(self, kind: type[E], **fields: Any) -> E:
        """Make, record and announce one event. Raises RecordError when that failed; then nothing is left behind."""
        event = kind(seq=self._seq, t=time.time(), **fields)
        self._write(encode_line(event))
        self._seq += 1
        if self._on_event is not None:
            self._on_event(event)
        return event

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _write(self, line: bytes) -> None:
        try:
            done = 0
            while done < len(line):
                done += os.pwrite(self._fd, line[done:], self._size + done)
            os.fsync(self._fd)
        except OSError as error:
            os.ftruncate(self._fd, self._size)
            raise record_error(self._path, error) from error
        self._size += len(line)


def encode_line(event: Event) -> bytes:
    """ASCII only, so that a lone surrogate in a model's or a command's output survives as an escape."""
    return json.dumps(event.model_dump(), ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"


def means_full_disk(error: BaseException | None) -> bool:
    """Whether a full disk is behind an error, whatever it was wrapped in."""
    while error is not None:
        if getattr(error, "full", False) or (isinstance(error, OSError) and error.errno in FULL_ERRNOS):
            return True
        error = error.__cause__
    return False


def record_error(path: Path, error: OSError) -> RecordError:
    """The RecordError that tells a full disk from other trouble."""
    full = error.errno in FULL_ERRNOS
    what = "the disk is full" if full else (error.strerror or str(error))
    return RecordError(f"cannot record in {path}: {what}", full=full)

"""The append-only lists of a collection, attempts.jsonl and refused.jsonl: how they are read, and how a line is added.

Covers: a line that a killed driver or a full disk tore is cut off, and whatever else is no line of such a list is a
clear error, not a crash further on.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, NonNegativeInt, ValidationError

from agent.errors import RecordError
from agent.trajectory.events import StopReason
from agent.trajectory.writer import record_error

DAMAGED: Final = "take that line out, or the file away: what was judged lies in the run folders"


def _text(value: Any) -> Any:
    """pydantic's own `str` has no place for the lone surrogates that names and messages may hold."""
    if not isinstance(value, str):
        raise ValueError("is no text")
    return value


def _reason(value: Any) -> Any:
    return value if value is None else StopReason(_text(value))


Text = Annotated[Any, AfterValidator(_text)]
OptionalText = Annotated[Any, AfterValidator(lambda value: value if value is None else _text(value))]
Reason = Annotated[Any, AfterValidator(_reason)]


class _Line(BaseModel):
    """What is read from a line; versions may have written more."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)


class AttemptLine(_Line):
    """A line of attempts.jsonl, as `records.py` writes it."""

    task: Text
    sample: NonNegativeInt
    outcome: OptionalText = None
    run: OptionalText = None
    error: OptionalText = None
    reason: Reason = None
    reward: int | None = None
    turns: NonNegativeInt | None = None
    prompt_tokens: NonNegativeInt | None = None
    completion_tokens: NonNegativeInt | None = None
    cost_usd: float | None = None
    speedup_eager: float | None = None
    speedup_compile: float | None = None
    seconds: float | None = None
    device_s: float | None = None
    stamp: OptionalText = None


class RefusalLine(_Line):
    """A line of refused.jsonl: a task of the plan (`id`), or a place in the source (`line`)."""

    id: OptionalText = None
    line: OptionalText = None


@dataclass(frozen=True)
class JsonLines:
    """An append-only file of JSON objects; each line is on disk before `append` returns."""

    path: Path
    kind: type[BaseModel]
    """What every line must be."""

    def read(self) -> Iterator[dict[str, Any]]:
        """Every complete line; a torn last one is not there. Raises RecordError for a damaged one before it."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise RecordError(f"cannot read {self.path}: {error.strerror or error}") from error
        complete = data[: data.rfind(b"\n") + 1]
        for number, line in enumerate(complete.splitlines(), 1):
            try:
                value: dict[str, Any] = json.loads(line)
                self.kind.model_validate(value)
            except (ValueError, RecursionError) as error:
                raise RecordError(f"{self.path}, line {number} is damaged: {_why(error)}", hint=DAMAGED) from error
            yield value

    def append(self, record: Mapping[str, Any]) -> None:
        """Raises RecordError when that failed; then the file is as it was."""
        line = json.dumps(record, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise record_error(self.path, error) from error
        try:
            _append(fd, line)
        except OSError as error:
            raise record_error(self.path, error) from error
        finally:
            os.close(fd)


def _append(fd: int, line: bytes) -> None:
    """Behind the last complete line: what a killed driver or a full disk left after it is overwritten."""
    end = _complete_size(fd)
    os.ftruncate(fd, end)
    try:
        done = 0
        while done < len(line):
            done += os.pwrite(fd, line[done:], end + done)
        os.fsync(fd)
    except OSError:
        os.ftruncate(fd, end)
        raise


def _complete_size(fd: int) -> int:
    end = os.fstat(fd).st_size
    while end and (block := os.pread(fd, min(end, 4096), max(0, end - 4096))):
        newline = block.rfind(b"\n")
        if newline >= 0:
            return end - len(block) + newline + 1
        end -= len(block)
    return 0


def _why(error: Exception) -> str:
    """One line."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'the line'}: {first['msg']}"
    return str(error)

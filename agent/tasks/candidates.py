"""What a source of tasks yields before it is checked: a text with an id and a place, or why there is none."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from agent.tasks.task import MAX_BYTES

RefusalCode = Literal["not_json", "missing_column", "not_utf8", "not_a_task", "too_large", "unreadable", "duplicate"]


@dataclass(frozen=True)
class Refusal:
    """Something in a source that is no task: `where` is a path, with `:line` behind it for a row of a file."""

    where: str
    code: RefusalCode
    detail: str


@dataclass(frozen=True)
class Candidate:
    """A text that may be a task. `named` is false where the source gave no id and one was made from the place;
    `columns` is what else its row holds.
    """

    where: Path
    id: str
    text: str
    named: bool = True
    columns: Mapping[str, Any] = field(default_factory=dict)


Found = Candidate | Refusal


def read_candidate(path: Path, *, id: str) -> Found:
    """The text of one file, as it is."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        return Refusal(str(path), "unreadable", error.strerror or str(error))
    return candidate(data, where=path, id=id)


def candidate(
    data: bytes, *, where: Path, id: str, named: bool = True, columns: Mapping[str, Any] | None = None
) -> Found:
    if len(data) > MAX_BYTES:
        return Refusal(str(where), "too_large", f"larger than {MAX_BYTES >> 20} MiB")
    try:
        return Candidate(where, id, data.decode("utf-8"), named, columns or {})
    except UnicodeDecodeError as error:
        return Refusal(str(where), "not_utf8", f"{error.reason} at byte {error.start}")


Candidates = Iterator[Found]

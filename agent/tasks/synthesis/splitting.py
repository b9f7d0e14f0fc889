"""A set in parts: tasks of one structure fall into one part, the same one whatever else is in the set."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.export.similarity import structure_of
from agent.export.splits import parse_splits, split_of
from agent.tasks.importing import import_set, write_rows
from agent.tasks.task import text_sha256


@dataclass(frozen=True)
class Part:
    """One part and where it was written."""

    name: str
    path: Path
    rows: int
    share: float


def split_set(source: str | Path, output: Path, shares: str) -> tuple[Part, ...]:
    """Writes one JSONL file per part of `shares` (train:0.9,val:0.1). Raises ConfigError."""
    splits = parse_splits(shares)
    rows = import_set(source).rows
    placed: dict[str, list[dict[str, Any]]] = {split.name: [] for split in splits}
    for row in rows:
        placed[split_of(_mark(row["code"]), splits)].append(row)
    return tuple(_written(output, split.name, placed[split.name], len(rows)) for split in splits)


def _written(output: Path, name: str, rows: Sequence[dict[str, Any]], total: int) -> Part:
    path = output / f"{name}.jsonl"
    write_rows(path, tuple(rows))
    return Part(name, path, len(rows), len(rows) / total)


def _mark(code: str) -> str:
    structure = structure_of(code)
    return text_sha256(" ".join(structure.tokens) if structure else code)

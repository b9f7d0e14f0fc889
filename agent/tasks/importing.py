"""Other people's sets as rows in one form: operators read from the text, data_source kept or made, hashes added."""

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.errors import ConfigError, RecordError
from agent.tasks.candidates import Refusal
from agent.tasks.sets import load_rows
from agent.tasks.task import Task

SPACES: Final = {"nn": "torch.nn", "F": "torch.nn.functional"}
NOT_OPERATORS: Final = ("Module", "Parameter", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "Tensor")


@dataclass(frozen=True)
class Imported:
    """`rows` in the source's order; `notes` say what was filled in."""

    rows: tuple[dict[str, Any], ...]
    refused: tuple[Refusal, ...]
    notes: tuple[str, ...]


def import_set(source: str | Path) -> Imported:
    """A KernelBench checkout, a file of CUDA-Agent-Ops-6K, or any other set. Raises ConfigError."""
    found, columns = load_rows(source)
    rows, made = [], {"ops": 0, "data_source": 0}
    for task, given in zip(found.tasks, columns, strict=True):
        row = _row(task, given)
        of_a_file_of_rows = not task.path.exists()  # PATH:LINE
        for name in made:
            made[name] += of_a_file_of_rows and not given.get(name)
        rows.append(row)
    notes = tuple(f"{count} rows had no {name}; it was made from the text" for name, count in made.items() if count)
    return Imported(tuple(rows), found.refused, notes)


def write_rows(path: Path, rows: tuple[dict[str, Any], ...]) -> None:
    """JSONL, whole or not at all. Raises ConfigError where the file is there already."""
    if path.exists():
        raise ConfigError(f"{path} exists", hint="choose another -o, or remove it")
    temporary = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror}") from error


def operators_of(text: str) -> tuple[str, ...]:
    """Names of what class Model constructs and calls from torch, in the order of the text."""
    model = next(
        (
            node
            for node in ast.walk(ast.parse(text.removeprefix("\ufeff")))
            if isinstance(node, ast.ClassDef) and node.name == "Model"
        ),
        None,
    )
    if model is None:
        return ()
    calls = [node for node in ast.walk(model) if isinstance(node, ast.Call)]
    calls.sort(key=lambda node: (node.lineno, node.col_offset))
    return tuple(name for call in calls if (name := _named(call.func)))


def _row(task: Task, given: Mapping[str, Any]) -> dict[str, Any]:
    names = operators_of(task.text)
    source = f"kernelbench/{task.name.partition('/')[0]}" if task.name.startswith("level") else f"torch#{len(names)}"
    kept = {name: value for name, value in given.items() if name not in ("task_id", "id", "name", "sha256")}
    row = {"task_id": task.name, "ops": list(names), "data_source": source}
    return row | {name: value for name, value in kept.items() if value} | {"code": task.text, "sha256": task.sha256}


def _named(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or not parts or parts[0] in NOT_OPERATORS or parts[0].startswith("_"):
        return ""
    if node.id in SPACES:
        return ".".join([SPACES[node.id], *reversed(parts)])
    return ".".join([node.id, *reversed(parts)]) if node.id == "torch" else ""

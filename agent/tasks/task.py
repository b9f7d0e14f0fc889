"""A task: the text of a model.py, checked by parsing it; it is never imported or executed on the host."""

import ast
import hashlib
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.config import expanded
from agent.errors import TaskError

MAX_BYTES: Final = 4 << 20
REQUIRED: Final = (
    ("Model", "class `Model(torch.nn.Module)`"),
    ("get_inputs", "function `get_inputs()` that returns the list of forward arguments"),
    ("get_init_inputs", "function `get_init_inputs()` that returns the list of constructor arguments"),
)


@dataclass(frozen=True)
class Task:
    """One problem. `sha256` is over the bytes of model.py; `name` is for people and folder names, not unique."""

    path: Path
    name: str
    text: str
    sha256: str


def load_task(path: Path) -> Task:
    """Read and parse a model.py. Raises TaskError with one line that names what is missing or wrong and where."""
    path = expanded(path).absolute()
    text = _read(path)
    check_text(text, label=path.name)
    return Task(path=path, name=task_name(path), text=text, sha256=text_sha256(text))


def task_name(path: Path) -> str:
    """`softmax` for both softmax.py and softmax/model.py."""
    return path.parent.name or path.stem if path.stem == "model" else path.stem


def text_sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def check_text(text: str, *, label: str) -> None:
    """Raises TaskError unless the text parses and binds every required name at module level."""
    names = set(_bound_names(_parse(text, label).body))
    missing = [what for name, what in REQUIRED if name not in names]
    if missing:
        raise TaskError(f"{label} has no {', no '.join(missing)}", hint="a task is a module in the KernelBench format")


def _read(path: Path) -> str:
    if path.is_dir():
        inner = path / "model.py"
        hint = f"give {inner}" if inner.is_file() else "give a model.py"
        raise TaskError(f"{path} is a folder", hint=hint)
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise TaskError(f"{path} is no regular file", hint="give a model.py")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise TaskError(f"there is no file {path}") from None
    except OSError as error:
        raise TaskError(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise TaskError(f"{path.name} is larger than {MAX_BYTES >> 20} MiB")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TaskError(f"{path.name} is not UTF-8 text: {error.reason} at byte {error.start}") from None


def _parse(text: str, label: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text.removeprefix("\ufeff"))
    except SyntaxError as error:
        where = f" (line {error.lineno})" if error.lineno else ""
        raise TaskError(f"{label} is not valid Python: {error.msg}{where}") from None
    except (RecursionError, MemoryError):  # what the parser raises where its stack ends
        raise TaskError(f"{label} cannot be parsed: it is nested too deeply") from None
    except ValueError as error:
        raise TaskError(f"{label} cannot be parsed: {error}") from None


def _bound_names(statements: Iterable[ast.stmt]) -> Iterator[str]:
    """Names bound at module level, also below if, try and with, but not inside functions and classes."""
    for node in statements:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (t.id for t in targets if isinstance(t, ast.Name))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        for field in ("body", "orelse", "finalbody", "handlers"):
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _bound_names(_inner(node, field))


def _inner(node: ast.stmt, field: str) -> Iterator[ast.stmt]:
    for item in getattr(node, field, []):
        if isinstance(item, ast.ExceptHandler):
            yield from item.body
        else:
            yield item

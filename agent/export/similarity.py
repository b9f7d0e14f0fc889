"""How alike two tasks are by the structure of their `class Model`, and how near each task is to a benchmark.

Covers: renamed variables and layers, changed constants, comments and layout, other get_inputs: these do not count. Does
not cover: the same computation written with other operators or in another order.

The structure is the pre-order walk of the class's syntax tree: kinds of nodes, names of attributes (`relu`, `Linear`)
and keywords. Names of variables, of what a module keeps in `self`, and values of constants are left out. The similarity
is 2 * L / (length + length), L being the longest common subsequence; the paper (arXiv 2602.24286, appendix 6) names
"PythonASTSimilarity" without a formula and drops what is above 0.9.
"""

import ast
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.config import expanded
from agent.errors import ConfigError

THRESHOLD: Final = 0.9
MODEL: Final = "Model"
MAX_FILE_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Structure:
    """One class Model; `name` says where it is from."""

    name: str
    tokens: tuple[str, ...]
    counts: Counter[str]


@dataclass(frozen=True)
class Nearest:
    """The most similar problem of the benchmark."""

    name: str
    similarity: float

    @property
    def contaminated(self) -> bool:
        return self.similarity > THRESHOLD


def structure_of(text: str, *, name: str = "") -> Structure | None:
    """None where the text does not parse or has no class Model."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.removeprefix("\ufeff"))
        found = next((node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == MODEL), None)
        if found is None:
            return None
        tokens = tuple(_walk(found))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return Structure(name, tokens, Counter(tokens))


def load_benchmark(checkout: Path) -> tuple[Structure, ...]:
    """Every class Model in a KernelBench checkout, or in any folder of such files. Raises ConfigError."""
    root = expanded(checkout)
    if not root.is_dir():
        raise ConfigError(f"{checkout} is not a folder", hint="--decontaminate takes a KernelBench checkout")
    base = root / "KernelBench" if (root / "KernelBench").is_dir() else root
    found: list[Structure] = []
    for path in sorted(base.rglob("*.py")):
        if path.is_file() and path.stat().st_size <= MAX_FILE_BYTES:
            name = path.relative_to(base).as_posix()
            structure = structure_of(path.read_text(encoding="utf-8", errors="replace"), name=name)
            if structure is not None:
                found.append(structure)
    if not found:
        raise ConfigError(f"there is no class Model in {checkout}", hint="--decontaminate takes a KernelBench checkout")
    return tuple(found)


def similarity(one: Structure, other: Structure) -> float:
    """Between 0 and 1; 1 for equal structures only. Symmetric."""
    return 2 * _common(_places(one.tokens), len(one.tokens), other.tokens) / (len(one.tokens) + len(other.tokens))


def nearest(task: Structure, benchmark: Sequence[Structure]) -> Nearest:
    """The most similar one; of equally similar ones the first. Candidates that cannot win are not compared in full."""
    places, length = _places(task.tokens), len(task.tokens)
    best, best_at = -1.0, 0
    for bound, at in sorted((-_bound(task, other), at) for at, other in enumerate(benchmark)):
        if -bound < best:
            break
        other = benchmark[at].tokens
        value = 2 * _common(places, length, other) / (length + len(other))
        if value > best or (value == best and at < best_at):
            best, best_at = value, at
    return Nearest(benchmark[best_at].name, round(best, 4))


def _places(tokens: Sequence[str]) -> dict[str, int]:
    """For each token the positions where it stands, as bits."""
    places: dict[str, int] = {}
    for at, token in enumerate(tokens):
        places[token] = places.get(token, 0) | 1 << at
    return places


def _common(places: dict[str, int], length: int, other: Sequence[str]) -> int:
    """Length of the longest common subsequence, bit-parallel (Hyyrö 2004): a whole row of the table in one number."""
    full = (1 << length) - 1
    row = full
    for token in other:
        match = row & places.get(token, 0)
        row = ((row + match) | (row - match)) & full
    return length - row.bit_count()


def _bound(one: Structure, other: Structure) -> float:
    """No similarity is higher: tokens in common without their order."""
    common = sum((one.counts & other.counts).values())
    return 2 * common / (len(one.tokens) + len(other.tokens))


def _walk(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.expr_context):
        return
    yield _token(node)
    body = _without_docstring(node)
    for child in ast.iter_child_nodes(node):
        if child is not body:
            yield from _walk(child)


def _token(node: ast.AST) -> str:
    kind = type(node).__name__
    match node:
        case ast.Attribute(value=ast.Name(id="self")):
            return f"{kind}.self"
        case ast.Attribute(attr=name):
            return f"{kind}.{name}"
        case ast.keyword(arg=name):
            return f"{kind}.{name}"
        case _:
            return kind


def _without_docstring(node: ast.AST) -> ast.AST | None:
    """The docstring's statement, which is left out."""
    if not isinstance(node, ast.ClassDef | ast.FunctionDef) or not node.body:
        return None
    first = node.body[0]
    is_text = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return first if is_text else None

"""Other sizes for a task: constants of the module that only get_inputs uses, or all of them, times a factor.

Covers tasks in KernelBench's form, whose sizes are whole numbers assigned at module level. Does not cover sizes that
stand inside functions or classes; such a task is refused as it stands.
"""

import ast
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

SMALLEST: Final = 8  # constants below are kernel sizes, numbers of groups, dimensions
SHRINKS: Final = (1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 1024, 1 / 4096, 1 / 16384)
GROWS: Final = (4.0, 16.0, 64.0, 256.0, 1024.0)


@dataclass(frozen=True)
class Rescaled:
    """A text with other sizes: name -> (as it stands, now). `factor` is what was aimed at for their product."""

    text: str
    factor: float
    sizes: Mapping[str, tuple[int, int]]

    def told(self) -> str:
        return ", ".join(f"{name} {old} → {new}" for name, (old, new) in self.sizes.items())


@dataclass(frozen=True)
class _Constant:
    """One whole number in the text: names may stand for several (`shape = (64, 128)`)."""

    name: str
    value: int
    line: int
    start: int
    end: int


def shrunk(text: str) -> list[Rescaled]:
    """From large to small."""
    return _variants(text, SHRINKS)


def grown(text: str) -> list[Rescaled]:
    """From small to large."""
    return _variants(text, GROWS)


def _variants(text: str, factors: tuple[float, ...]) -> list[Rescaled]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    constants = [found for found in _constants(tree) if found.value >= SMALLEST]
    inputs, init = _names_in(tree, "get_inputs"), _names_in(tree, "get_init_inputs")
    free = [found for found in constants if found.name in inputs and found.name not in init]
    shared = [found for found in constants if found.name in inputs and found.name in init]
    made: list[Rescaled] = []
    for factor in factors:
        sizes = _resized(free, factor)
        left = factor / _product(sizes)
        if shared and not 0.5 <= left <= 2.0:
            sizes |= _resized(shared, left)
        if any(new != constant.value for constant, new in sizes.items()):
            made.append(_written(text, sizes, factor))
    return [one for at, one in enumerate(made) if all(one.text != other.text for other in made[:at])]


def _resized(constants: list[_Constant], factor: float) -> dict[_Constant, int]:
    """The largest constants change first; halves and doubles, so that what divided them still does."""
    sizes = {constant: constant.value for constant in constants}
    steps = round(abs(math.log2(factor)))
    for _ in range(steps):
        fit = [one for one, now in sizes.items() if factor > 1 or (now >= 2 * SMALLEST and now % 2 == 0)]
        fit = fit or [one for one, now in sizes.items() if now >= 2 * SMALLEST]
        if not fit:
            break
        chosen = min(fit, key=lambda one: sizes[one]) if factor > 1 else max(fit, key=lambda one: sizes[one])
        sizes[chosen] = sizes[chosen] * 2 if factor > 1 else sizes[chosen] // 2
    return sizes


def _product(sizes: Mapping[_Constant, int]) -> float:
    return math.prod(new / constant.value for constant, new in sizes.items())


def _written(text: str, sizes: Mapping[_Constant, int], factor: float) -> Rescaled:
    lines = text.encode("utf-8").split(b"\n")
    for constant, new in sorted(sizes.items(), key=lambda item: (item[0].line, item[0].start), reverse=True):
        line = lines[constant.line - 1]
        lines[constant.line - 1] = line[: constant.start] + str(new).encode() + line[constant.end :]
    changed: dict[str, tuple[int, int]] = {}
    for constant, new in sizes.items():
        if new != constant.value:
            name = constant.name if constant.name not in changed else f"{constant.name} ({constant.value})"
            changed[name] = (constant.value, new)
    return Rescaled(b"\n".join(lines).decode("utf-8"), factor, changed)


def _constants(tree: ast.Module) -> Iterator[_Constant]:
    for node in tree.body:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Name):
            values = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
            yield from (found for item in values if (found := _whole(target.id, item)))
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for name, item in zip(target.elts, value.elts, strict=False):
                if isinstance(name, ast.Name) and (found := _whole(name.id, item)):
                    yield found


def _whole(name: str, node: ast.expr) -> _Constant | None:
    if not isinstance(node, ast.Constant) or type(node.value) is not int or node.end_col_offset is None:
        return None
    return _Constant(name, node.value, node.lineno, node.col_offset, node.end_col_offset)


def _names_in(tree: ast.Module, function: str) -> set[str]:
    found = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function), None)
    return {node.id for node in ast.walk(found) if isinstance(node, ast.Name)} if found else set()

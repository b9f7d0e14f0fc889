"""Prepares a row kernel for text: merges loops that run through memory as one, and chooses the loop whose steps are
lanes of a vector.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from agent.backends.builtin.affine import Affine, Atom, Chosen, affine, total
from agent.backends.builtin.kernels import Buffer, Pass, RowKernel, Statement, Store

ENOUGH_ROWS: Final = 64
NARROW: Final = 8


@dataclass(frozen=True)
class Lanes:
    """`row`: the loop among the rows whose steps are lanes, or None where every pass has its own (`cols`)."""

    row: Atom | None
    cols: tuple[Atom | None, ...]


def merge_loops(kernel: RowKernel) -> None:
    """Adjacent loops become one wherever every address steps evenly through both. Changes the kernel in place."""
    groups = [kernel.rows, *(item.cols for item in kernel.passes)]
    while True:
        pair = next(
            (
                (outer, inner)
                for group in groups
                for outer, inner in pairwise(group)
                if _mergeable(kernel, groups, outer, inner)
            ),
            None,
        )
        if pair is None:
            return
        _merge(kernel, groups, *pair)


def _mergeable(kernel: RowKernel, groups: list[list[Atom]], outer: Atom, inner: Atom) -> bool:
    for group in groups:
        if (outer in group) != (inner in group):
            return False
        if outer in group and group.index(inner) != group.index(outer) + 1:
            return False
    for address in kernel.affines():
        if address.coefficient(outer) != address.coefficient(inner) * inner.size:
            return False
        for atom, _ in address.terms:
            if isinstance(atom, Chosen) and (outer in atom.deps) != (inner in atom.deps):
                return False
    return True


def _merge(kernel: RowKernel, groups: list[list[Atom]], outer: Atom, inner: Atom) -> None:
    for group in groups:
        if outer in group:
            group.remove(outer)
    inner.size *= outer.size
    for statement in statements_of(kernel):
        statement.ref.deps = _without(statement.ref.deps, outer, inner)
        if statement.address is not None:
            statement.address = _dropped(statement.address, outer)
    for item in kernel.passes:
        for stash in item.stashes:
            stash.address = _dropped(stash.address, outer)
        for accumulate in item.accumulates:
            accumulate.ref.deps = _without(accumulate.ref.deps, outer, inner)
    for store in (*kernel.stores, *(store for item in kernel.passes for store in item.stores)):
        store.address = _dropped(store.address, outer)


def statements_of(kernel: RowKernel) -> list[Statement]:
    found = [s for level in sorted(kernel.row_statements) for s in kernel.row_statements[level]]
    return found + [s for item in kernel.passes for s in item.statements]


def _without(deps: frozenset[Atom], outer: Atom, inner: Atom) -> frozenset[Atom]:
    return (deps - {outer}) | {inner} if outer in deps else deps


def _dropped(address: Affine, outer: Atom) -> Affine:
    for atom, _ in address.terms:
        if isinstance(atom, Chosen) and outer in atom.deps:
            atom.deps = atom.deps - {outer}
    return affine(address.const, {atom: c for atom, c in address.terms if atom is not outer})


# --- pointwise kernels ---------------------------------------------------------------------------------------------


def pointwise_to_pass(kernel: RowKernel) -> None:
    """A kernel without reductions has only row values: its inner loops become the columns of one pass."""
    if kernel.passes or not kernel.rows:
        return
    statements = kernel.row_statements.pop(0, [])
    lane = best_lane(kernel.rows, statements, kernel.stores)
    others = [atom for atom in kernel.rows if atom is not lane]
    outer: list[Atom] = []
    while others and total(outer) < ENOUGH_ROWS:
        outer.append(others.pop(0))
    item = Pass(0, [*others, lane])
    hoisted = [s for s in statements if s.ref.deps <= set(outer)]
    item.statements = [s for s in statements if not s.ref.deps <= set(outer)]
    item.stores, kernel.stores = kernel.stores, []
    kernel.row_statements[0] = hoisted
    kernel.rows, kernel.passes = outer, [item]


def best_lane(atoms: list[Atom], statements: list[Statement], stores: list[Store]) -> Atom:
    return max(atoms, key=lambda atom: lane_score(atom, statements, stores))


def lane_score(lane: Atom, statements: list[Statement], stores: list[Store]) -> float:
    """Bytes read and written in order of the loop, less those that are not."""
    score = 0.0
    accesses: list[tuple[Buffer, Affine]] = [
        (s.buffer, s.address) for s in statements if s.buffer is not None and s.address is not None
    ]
    accesses += [(store.buffer, store.address) for store in stores]
    for buffer, address in accesses:
        coefficient = address.coefficient(lane)
        chosen = any(isinstance(atom, Chosen) and lane in atom.deps for atom, _ in address.terms)
        if coefficient == 1 and not chosen:
            score += buffer.size
        elif coefficient or chosen:
            score -= buffer.size
    return score * (0.25 if lane.size < NARROW else 1.0) + min(lane.size, 256) * 1e-3


def choose_lanes(kernel: RowKernel) -> Lanes:
    """Lanes along the columns where the data lies so, else along the rows (reductions over an outer axis)."""
    cols: list[Atom | None] = []
    by_col = 0.0
    for item in kernel.passes:
        scores = {atom: lane_score(atom, item.statements, item.stores) for atom in item.cols}
        best = max(scores, key=lambda atom: scores[atom]) if scores else None
        cols.append(best)
        by_col += scores[best] if best is not None else 0.0
    by_row = {
        atom: sum(lane_score(atom, item.statements, item.stores) for item in kernel.passes) for atom in kernel.rows
    }
    row = max(by_row, key=lambda atom: by_row[atom]) if by_row else None
    if row is not None and by_row[row] > by_col and row.size >= NARROW:
        return Lanes(row, (None,) * len(kernel.passes))
    return Lanes(None, tuple(cols))

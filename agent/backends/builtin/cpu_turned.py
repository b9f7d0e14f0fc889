"""Pointwise kernels that read along one loop and write along another, for target cpu."""

from typing import Any, Final

from agent.backends.builtin import loops
from agent.backends.builtin.affine import Atom, Chosen, total
from agent.backends.builtin.c_names import FLOATS
from agent.backends.builtin.cpu_lines import ALONE_BELOW, Lines, decode_lines
from agent.backends.builtin.kernels import RowKernel, Statement

LEAST: Final = 16  # steps of both loops: below, there are no whole squares
MOST_LOADS: Final = 4  # squares that are turned side by side, each in the registers' way of the others


def turned_view(kernel: RowKernel) -> dict[str, Any] | None:
    """None where nothing has to be turned."""
    if kernel.passes or set(kernel.row_statements) - {0}:
        return None
    loops.merge_loops(kernel)
    found = _directions(kernel)
    if found is None:
        return None
    lane, across = found
    statements = kernel.row_statements[0]
    crosswise = [s for s in statements if _is_crosswise(s, lane)]
    text = Lines(kernel)
    text.lane = lane
    loads = [_load(text, statement, lane) for statement in crosswise]
    lines = text.lines([s for s in statements if s not in crosswise])
    lines += [text.store_line(store, lane) for store in kernel.stores]
    rows = [atom for atom in kernel.rows if atom not in (lane, across)]
    return {
        "product": False,
        "turned": True,
        "name": kernel.name,
        "parameters": text.parameters(),
        "arguments": list(text.used),
        "rows": total(rows),
        "decode": decode_lines(rows),
        "across": across.name,
        "deep": across.size,
        "lane": {"name": lane.name, "size": lane.size},
        "loads": loads,
        "lines": lines,
        "alone": "" if total(kernel.rows) >= ALONE_BELOW else " if (false)",
    }


def _directions(kernel: RowKernel) -> tuple[Atom, Atom] | None:
    """The loop that all stores run along, and the one that all loads run along which do not follow it."""
    wide = [atom for atom in kernel.rows if atom.size >= LEAST]
    lane = next((a for a in wide if all(store.address.coefficient(a) == 1 for store in kernel.stores)), None)
    addresses = [s.address for s in kernel.row_statements.get(0, []) if s.address is not None]
    if lane is None or any(isinstance(atom, Chosen) for address in addresses for atom, _ in address.terms):
        return None
    crosswise = [s for s in kernel.row_statements[0] if _is_crosswise(s, lane)]
    for across in wide:
        if across is not lane and all(s.address and s.address.coefficient(across) == 1 for s in crosswise):
            return (lane, across) if 0 < len(crosswise) <= MOST_LOADS else None
    return None


def _is_crosswise(statement: Statement, lane: Atom) -> bool:
    if statement.kind != "load" or statement.buffer is None or statement.address is None:
        return False
    return statement.buffer.dtype in FLOATS and statement.address.coefficient(lane) not in (0, 1)


def _load(text: Lines, statement: Statement, lane: Atom) -> dict[str, Any]:
    assert statement.buffer is not None and statement.address is not None
    place = f"{text.use(statement.buffer)} + {text.address(statement.address)}"
    return {"name": statement.ref.name, "place": place, "stride": statement.address.coefficient(lane)}

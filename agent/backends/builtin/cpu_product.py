"""A matrix product of target cpu for its template: where both sides lie, and what is done with every vector of it."""

from typing import Any

from agent.backends.builtin.affine import Affine, Atom, of, total
from agent.backends.builtin.cpu_lines import Lines, decode_lines
from agent.backends.builtin.epilogue import Fused
from agent.backends.builtin.kernels import Buffer, ProductKernel, Ref, RowKernel, Statement, Store


def product_view(item: ProductKernel | Fused) -> dict[str, Any]:
    """Raises Unsupported."""
    kernel = item.product if isinstance(item, Fused) else item
    text = Lines(item.after if isinstance(item, Fused) else _nothing_after(kernel))
    (left, left_at), (right, right_at) = kernel.left, kernel.right
    for buffer in (left, right):
        text.use(buffer)
    rows, text.lane = text.kernel.rows[:-1], text.kernel.rows[-1]
    lines = [line for statement in text.kernel.row_statements[0] for line in _line(text, statement, kernel.out[0])]
    lines += [text.store_line(store, text.lane) for store in text.kernel.stores]
    return {
        "product": True,
        "fused": isinstance(item, Fused),
        "name": kernel.name,
        "parameters": text.parameters(),
        "arguments": list(text.used),
        "batches": total(kernel.batch),
        "m": kernel.m.size,
        "n": kernel.n.size,
        "k": kernel.k.size,
        "decode": [line.replace("row", "batch") for line in decode_lines([a for a in kernel.batch if a.size > 1])],
        "row_decode": decode_lines(rows),
        "lines": lines,
        "left": _base(left, left_at, kernel),
        "right": _base(right, right_at, kernel),
        "left_m": left_at.coefficient(kernel.m),
        "left_k": left_at.coefficient(kernel.k),
        "right_k": right_at.coefficient(kernel.k),
        "right_n": right_at.coefficient(kernel.n),
    }


def _line(text: Lines, statement: Statement, product: Buffer) -> list[str]:
    if statement.kind == "load" and statement.buffer is product:
        return [f"const V {statement.ref.name} = product;"]
    return text.lines([statement])


def _nothing_after(kernel: ProductKernel) -> RowKernel:
    """Each element is stored where it belongs."""
    row, col = Atom("m", total(kernel.batch) * kernel.m.size), Atom("n", kernel.n.size)
    address = of(row).times(col.size).plus(of(col))
    element = Ref("product", "f32", frozenset([row, col]))
    return RowKernel(kernel.name, [row, col], [], {0: []}, [Store(kernel.out[0], address, element)], 0, False)


def _base(buffer: Buffer, address: Affine, kernel: ProductKernel) -> str:
    """Where a batch begins."""
    parts = [f"{atom.name} * {address.coefficient(atom)}" for atom in kernel.batch if address.coefficient(atom)]
    return " + ".join([buffer.name, *parts, *([str(address.const)] if address.const else [])])

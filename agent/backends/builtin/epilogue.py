"""Pointwise kernels that follow a matrix product are computed on its tiles, before these reach memory."""

from dataclasses import dataclass

from agent.backends.builtin import loops
from agent.backends.builtin.affine import Affine, Atom, Chosen, affine, of, row_major, total
from agent.backends.builtin.kernels import Buffer, Kernel, ProductKernel, Program, RowKernel


@dataclass(eq=False)
class Fused:
    """`after` reads the product's element at its own position; its last loop runs over the product's columns."""

    product: ProductKernel
    after: RowKernel


def fused(program: Program) -> tuple[list[Kernel | Fused], Program]:
    """The kernels in order, and the program without the kernels and tensors that are no more. Changes row kernels in
    place.
    """
    found: list[Kernel | Fused] = list(program.kernels)
    scratch = list(program.scratch)
    for product in program.kernels:
        if not isinstance(product, ProductKernel) or product.out[0] not in scratch:
            continue
        readers = [item for item in found if product.out[0] in _read(item)]
        if len(readers) == 1 and isinstance(after := readers[0], RowKernel) and _follows(product, after):
            found[found.index(after)] = Fused(product, after)
            found.remove(product)
            scratch.remove(product.out[0])
    left = tuple(item.product if isinstance(item, Fused) else item for item in found)
    return found, Program(left, program.inputs, program.outputs, tuple(scratch))


def _read(item: Kernel | Fused) -> list[Buffer]:
    if isinstance(item, ProductKernel):
        return [item.left[0], item.right[0]]
    parts = [item] if isinstance(item, RowKernel) else [item.after]
    own = [] if isinstance(item, RowKernel) else _read(item.product)
    return own + [s.buffer for part in parts for s in loops.statements_of(part) if s.buffer is not None]


def _follows(product: ProductKernel, after: RowKernel) -> bool:
    """Whether `after` is pointwise and visits every element of the product once, at one place; its loops then are put
    in the product's order.
    """
    if after.passes or after.split or set(after.row_statements) - {0}:
        return False
    loops.merge_loops(after)
    places = {s.address for s in loops.statements_of(after) if s.buffer is product.out[0]}
    if len(places) != 1 or total(after.rows) != product.out[0].size:
        return False
    if len(after.rows) == 1:
        if any(isinstance(atom, Chosen) for address in after.affines() for atom, _ in address.terms):
            return False
        _divide(after, product.n.size)
        places = {s.address for s in loops.statements_of(after) if s.buffer is product.out[0]}
    (place,) = places
    assert place is not None
    ordered = sorted(after.rows, key=lambda atom: -place.coefficient(atom))
    if place != _running(ordered) or ordered[-1].size != product.n.size:
        return False
    after.rows = ordered
    return True


def _running(atoms: list[Atom]) -> Affine:
    strides = row_major(tuple(atom.size for atom in atoms))
    return affine(0, dict(zip(atoms, strides, strict=True)))


def _divide(kernel: RowKernel, width: int) -> None:
    """The only loop becomes one over rows and one over `width` columns."""
    (whole,) = kernel.rows
    row, col = Atom(f"{whole.name}r", whole.size // width), Atom(f"{whole.name}c", width)
    position = of(row).times(width).plus(of(col))

    def divided(address: Affine) -> Affine:
        rest = affine(address.const, {atom: c for atom, c in address.terms if atom is not whole})
        return rest.plus(position.times(address.coefficient(whole)))

    for statement in loops.statements_of(kernel):
        if whole in statement.ref.deps:
            statement.ref.deps = (statement.ref.deps - {whole}) | {row, col}
        if statement.address is not None:
            statement.address = divided(statement.address)
    for store in kernel.stores:
        store.address = divided(store.address)
    kernel.rows = [row, col]

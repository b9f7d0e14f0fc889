"""Cuts a value graph into kernels: what is fused, which axes are rows, which values go through memory.

Every output is pulled: its element at a loop position is followed back to loads. A reduction becomes a pass of the same
kernel where its result is a value of the row, else a kernel of its own (a cut).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agent.backends.builtin import affine as aff
from agent.backends.builtin.affine import Affine, Atom
from agent.backends.builtin.build import Builder
from agent.backends.builtin.follow import Cut
from agent.backends.builtin.ir import Product, Source, Unsupported, Value, numel
from agent.backends.builtin.kernels import Buffer, Kernel, ProductKernel, Program

MOST_KERNELS: Final = 40


@dataclass(frozen=True)
class Machine:
    """What the schedule depends on: rows below `few_rows` are not enough to keep all workers busy; rows up to
    `stash_elements` have room for values that later passes need again.
    """

    few_rows: int = 16
    stash_elements: int = 1 << 18


def schedule(outputs: Sequence[Value], *, dtypes: Sequence[str] = (), machine: Machine | None = None) -> Program:
    """Raises Unsupported where the graph cannot be cut into these kernels. `dtypes`: of the outputs in memory (default:
    what they are computed in).
    """
    return _Scheduler(outputs, dtypes, machine or Machine()).run()


def computed_in(value: Value) -> str:
    return "bool" if value.type == "bool" else "float32"


@dataclass(frozen=True)
class _Part:
    """A box of a value: where it begins and how large it is on every axis."""

    value: Value
    start: tuple[int, ...]
    size: tuple[int, ...]

    def divided(self, axis: int, steps: int) -> "tuple[_Part, _Part]":
        return (
            _Part(self.value, self.start, _with(self.size, axis, steps)),
            _Part(
                self.value,
                _with(self.start, axis, self.start[axis] + steps),
                _with(self.size, axis, self.size[axis] - steps),
            ),
        )


class _Scheduler:
    def __init__(self, outputs: Sequence[Value], dtypes: Sequence[str], machine: Machine) -> None:
        self.machine = machine
        self.buffers: dict[Value, Buffer] = {}
        self.inputs: dict[str, Buffer] = {}
        self.kernels: list[tuple[list[Value], set[Value], Kernel]] = []
        named = zip(outputs, dtypes or map(computed_in, outputs), strict=True)
        self.outputs = [self._output(value, dtype, k) for k, (value, dtype) in enumerate(named)]

    def _output(self, value: Value, dtype: str, number: int) -> Buffer:
        if value in self.buffers:
            raise Unsupported("one tensor returned twice")
        return self.buffers.setdefault(value, Buffer(f"out{number}", dtype, numel(value.shape)))

    def run(self) -> Program:
        pending = self._groups(list(self.buffers))
        while pending:
            group = pending.pop(0)
            before = set(self.buffers)
            self._together(group)
            pending += [[_whole(value)] for value in self.buffers if value not in before]
            if len(self.buffers) > MOST_KERNELS:
                raise Unsupported(f"a graph of more than {MOST_KERNELS} kernels")
        scratch = [buffer for buffer in self.buffers.values() if buffer not in self.outputs]
        return Program(tuple(self._ordered()), tuple(self.inputs.values()), tuple(self.outputs), tuple(scratch))

    def _groups(self, values: list[Value]) -> list[list[_Part]]:
        """Outputs of one shape are computed by one kernel where that needs nothing more than each alone."""
        groups: dict[tuple[int, ...], list[_Part]] = {}
        for value in values:
            if not isinstance(value, Product):
                groups.setdefault(value.shape, []).append(_whole(value))
        products = [[_whole(value)] for value in values if isinstance(value, Product)]
        return [*groups.values(), *products]

    def _ordered(self) -> list[Kernel]:
        """Kernels after those whose results they read."""
        ready: list[Kernel] = []
        left = list(self.kernels)
        while left:
            owed = {value for values, _, _ in left for value in values}
            now = [item for item in left if not (item[1] & owed)]
            if not now:
                raise Unsupported("kernels that wait for each other")
            ready += [kernel for _, _, kernel in now]
            left = [item for item in left if item not in now]
        return ready

    def cut(self, value: Value) -> None:
        if value in self.buffers or isinstance(value, Source):
            raise Unsupported("a view that no kernel can express")
        self.buffers[value] = Buffer(f"mid{len(self.buffers)}", computed_in(value), numel(value.shape))

    def _together(self, group: list[_Part]) -> None:
        """Makes the group's kernel, or one for each part where several had better go separately. Tries again after
        every cut, split of a loop and division of a part.
        """
        splits: dict[int, list[int]] = {}
        several = len(group) > 1
        while True:
            atoms, index = _loops(group[0].size, splits)
            try:
                self._make(group, atoms, index)
                return
            except Cut as cut:
                if several:
                    self._apart(group)
                    return
                self.cut(cut.value)
            except aff.NeedSplit as need:
                found = _find(atoms, need.atom)
                if found is None:
                    assert need.value is not None
                    self.cut(need.value)
                    continue
                axis, part = found
                sizes = [atom.size for atom in atoms[axis]]
                sizes[part : part + 1] = [sizes[part] // need.inner, need.inner]
                splits[axis] = sizes
            except aff.Straddles as border:
                found = _find(atoms, border.atom)
                if found is None or len(atoms[found[0]]) > 1:
                    self.cut(border.value)
                    continue
                axis = found[0]
                halves = [part.divided(axis, border.steps) for part in group]
                first, second = [half[0] for half in halves], [half[1] for half in halves]
                if first[0].size == second[0].size:
                    group = first + second
                    continue
                if several:
                    self._apart(group)
                else:
                    self._together(first)
                    self._together(second)
                return

    def _apart(self, group: list[_Part]) -> None:
        for part in group:
            self._together([part])

    def _make(self, group: list[_Part], atoms: list[list[Atom]], index: tuple[Affine, ...]) -> None:
        first = group[0].value
        if isinstance(first, Product):
            self._product(first)
            return
        roots = [(part.value, _shifted(index, part.start)) for part in group]
        builder = Builder(self, roots, [atom for axis in atoms for atom in axis])
        kernel = builder.kernel(f"kernel{len(self.kernels)}")
        self.kernels.append(([part.value for part in group], builder.read, kernel))

    def _product(self, root: Product) -> None:
        *batch_shape, m_size, n_size = root.shape
        batch = [Atom(f"b{k}", size) for k, size in enumerate(batch_shape)]
        m, n, k = Atom("m", m_size), Atom("n", n_size), Atom("k", root.left.shape[-1])
        builder = Builder(self, [(root, ())], [*batch, m, n, k])
        lead = [aff.of(atom) if atom.size > 1 else aff.ZERO for atom in batch]
        left = builder.direct(root.left, (*_aligned(lead, root.left), _of(m), _of(k)))
        right = builder.direct(root.right, (*_aligned(lead, root.right), _of(k), _of(n)))
        out = aff.dot([*lead, _of(m), _of(n)], aff.row_major(root.shape))
        name = f"product{len(self.kernels)}"
        kernel = ProductKernel(name, batch, m, n, k, left, right, (self.buffers[root], out))
        self.kernels.append(([root], builder.read, kernel))


def _whole(value: Value) -> _Part:
    return _Part(value, (0,) * len(value.shape), value.shape)


def _with(sizes: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*sizes[:axis], size, *sizes[axis + 1 :])


def _shifted(index: tuple[Affine, ...], start: tuple[int, ...]) -> tuple[Affine, ...]:
    return tuple(part.plus(Affine(first)) for part, first in zip(index, start, strict=True))


def _find(atoms: list[list[Atom]], wanted: Atom) -> tuple[int, int] | None:
    """Axis and part of a loop; None for a loop of a reduction."""
    for axis, parts in enumerate(atoms):
        for part, atom in enumerate(parts):
            if atom is wanted:
                return axis, part
    return None


def _of(atom: Atom) -> Affine:
    return aff.of(atom) if atom.size > 1 else aff.ZERO


def _aligned(lead: Sequence[Affine], operand: Value) -> list[Affine]:
    shape = operand.shape[:-2]
    return [aff.ZERO if size == 1 else part for size, part in zip(shape, lead[len(lead) - len(shape) :], strict=True)]


def _loops(shape: Sequence[int], splits: Mapping[int, list[int]]) -> tuple[list[list[Atom]], tuple[Affine, ...]]:
    """One or more loops for every axis, none for axes of size 1."""
    atoms, index = [], []
    count = 0
    for axis, size in enumerate(shape):
        parts, position = [], aff.ZERO
        for part in splits.get(axis, [size] if size != 1 else []):
            atom = Atom(f"i{count}", part)
            count += 1
            parts.append(atom)
            position = position.times(part).plus(aff.of(atom))
        atoms.append(parts)
        index.append(position)
    return atoms, tuple(index)

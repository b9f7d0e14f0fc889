"""Follows a value back to what it is read from: operands and their indices, and which loops it depends on."""

from dataclasses import dataclass, field
from typing import Final, Protocol

from agent.backends.builtin import affine as aff
from agent.backends.builtin.affine import Affine, Atom, Chosen
from agent.backends.builtin.ir import (
    Const,
    Expand,
    Iota,
    Joined,
    Map,
    Permute,
    Product,
    Reduce,
    Reshape,
    Slice,
    Source,
    Take,
    Unsupported,
    Value,
    ancestry,
    numel,
)
from agent.backends.builtin.kernels import Buffer

Index = tuple[Affine, ...]
Key = tuple[Value, Index]
MOST_NODES: Final = 20_000
SMALLER: Final = 8


class Cut(Exception):
    """`value` has to go through memory."""

    def __init__(self, value: Value, kept: frozenset[Atom] | None = None) -> None:
        super().__init__(type(value).__name__)
        self.value = value
        self.kept = kept  # of a reduction: the loops that its result depends on


class Plan(Protocol):
    """What the scheduler knows beyond one kernel."""

    buffers: dict[Value, Buffer]
    inputs: dict[str, Buffer]

    @property
    def machine(self) -> "Limits": ...


class Limits(Protocol):
    @property
    def few_rows(self) -> int: ...

    @property
    def stash_elements(self) -> int: ...


@dataclass(frozen=True)
class Info:
    """Loops that a value depends on, and how many passes must have ended before it is known."""

    deps: frozenset[Atom]
    level: int


@dataclass(eq=False)
class Reduction:
    """A reduction at an index: the index of its argument, and the loops it runs over."""

    key: Key
    inner: Index
    cols: list[Atom]
    level: int = 0


@dataclass(eq=False)
class Follower:
    """From `roots`, values at indices made of the loops `atoms`, to memory. Raises Cut, NeedSplit, Unsupported."""

    plan: Plan
    roots: list[Key]
    atoms: list[Atom]
    read: set[Value] = field(default_factory=set)
    rows: list[Atom] = field(default_factory=list)
    infos: dict[Key, Info] = field(default_factory=dict)
    reductions: dict[Key, Reduction] = field(default_factory=dict)
    chosen: dict[Key, Chosen] = field(default_factory=dict)
    extra: list[Atom] = field(default_factory=list)

    # --- following values --------------------------------------------------------------------------------------------

    def is_memory(self, value: Value) -> bool:
        return self._tensor_of(value) is not None

    def _tensor_of(self, value: Value) -> Value | None:
        """The tensor that an element of `value` is read from without more ado: itself, or what a reshape of contiguous
        memory lies in.
        """
        if isinstance(value, Source) or value in self.plan.buffers:
            return value if all(value is not root for root, _ in self.roots) else None
        if isinstance(value, Reshape):
            inner = self._tensor_of(value.arg)
            contiguous = not isinstance(inner, Source) or inner.stride == aff.row_major(inner.shape)
            return inner if inner is not None and contiguous else None
        return None

    def operands(self, value: Value, index: Index) -> list[Key]:
        """The values that an element is made of, with their indices; not for reductions and memory."""
        match value:
            case Map(args=args):
                return [(arg, _broadcast(arg, index)) for arg in args]
            case Expand(arg=arg):
                return [(arg, _broadcast(arg, index))]
            case Permute(arg=arg, axes=axes):
                placed = dict(zip(axes, index, strict=True))
                return [(arg, tuple(placed[axis] for axis in range(len(axes))))]
            case Slice(arg=arg, axis=axis, start=start, step=step):
                moved = index[axis].times(step).plus(Affine(start))
                return [(arg, (*index[:axis], moved, *index[axis + 1 :]))]
            case Reshape(arg=arg):
                try:
                    return [(arg, aff.reshaped(index, arg.shape, value.shape))]
                except aff.NotAffine:
                    raise Cut(arg) from None
                except aff.NeedSplit as need:
                    need.value = value
                    raise
            case Joined():
                return [self._piece(value, index)]
            case Take():
                return self._taken(value, index)
        return []

    def _piece(self, value: Joined, index: Index) -> Key:
        """The piece that all positions of the loops lie in. Raises affine.Straddles, Cut."""
        at = index[value.axis]
        if any(isinstance(atom, Chosen) for atom, _ in at.terms):
            raise Cut(value)
        start = 0
        for piece in value.pieces:
            size = piece.shape[value.axis]
            if start <= at.smallest() and at.largest() < start + size:
                inside = at.plus(Affine(-start))
                return piece, (*index[: value.axis], inside, *index[value.axis + 1 :])
            border = start + size
            if start <= at.smallest() < border:
                raise _border(value, at, border - at.smallest())
            start = border
        raise Cut(value)

    def _taken(self, value: Take, index: Index) -> list[Key]:
        axis, chooser = value.axis, value.index
        inner = index if value.along else index[axis : axis + len(chooser.shape)]
        key = (chooser, _broadcast(chooser, inner))
        if key not in self.chosen:
            deps = self.info(*key).deps
            self.chosen[key] = Chosen(f"at{len(self.chosen)}", value.arg.shape[axis], deps)
        after = index[axis + 1 :] if value.along else index[axis + len(chooser.shape) :]
        at = aff.of(self.chosen[key]) if value.arg.shape[axis] > 1 else aff.ZERO
        return [key, (value.arg, (*index[:axis], at, *after))]

    def direct(self, value: Value, index: Index) -> tuple[Buffer, Affine]:
        """Where an operand lies in memory. Raises Cut where it has to be computed first."""
        if self.is_memory(value):
            return self.place(value, index)
        if isinstance(value, Expand | Permute | Slice | Reshape):
            return self.direct(*self.operands(value, index)[0])
        raise Cut(value)

    def place(self, value: Value, index: Index) -> tuple[Buffer, Affine]:
        tensor = self._tensor_of(value)
        strides = tensor.stride if isinstance(tensor, Source) and tensor is value else aff.row_major(value.shape)
        address = aff.dot(index, strides)
        if isinstance(tensor, Source):
            made = Buffer(f"in_{tensor.name}", tensor.dtype, _extent(tensor))
            return self.plan.inputs.setdefault(tensor.name, made), address.plus(Affine(tensor.offset))
        assert tensor is not None
        self.read.add(tensor)
        return self.plan.buffers[tensor], address

    # --- what depends on what ----------------------------------------------------------------------------------------

    def info(self, value: Value, index: Index) -> Info:
        key = (value, index)
        if key not in self.infos:
            if len(self.infos) > MOST_NODES:
                raise Unsupported("a graph that is too large")
            self.infos[key] = self._info(value, index)
        return self.infos[key]

    def _info(self, value: Value, index: Index) -> Info:
        if self.is_memory(value):
            address = self.place(value, index)[1]
            return Info(address.atoms(), 0)
        if isinstance(value, Const):
            return Info(frozenset(), 0)
        if isinstance(value, Iota):
            return Info(index[0].atoms(), 0)
        if isinstance(value, Product):
            raise Cut(value)
        if isinstance(value, Reduce):
            return self._reduction_info(value, index)
        parts = [self.info(*key) for key in self.operands(value, index)]
        deps = frozenset().union(*(part.deps for part in parts))
        return Info(deps, max((part.level for part in parts), default=0))

    def _reduction_info(self, value: Reduce, index: Index) -> Info:
        kept = frozenset().union(*(part.atoms() for part in index)) if index else frozenset()
        if kept != frozenset(self.rows):
            raise Cut(value, kept)
        reduction = self._reduction(value, index)
        try:
            inner = self.info(value.arg, reduction.inner)
        except Cut as cut:
            # Kernels of their own take along what they can of the way from the reduction to here.
            raise self.wider(cut, value.arg, reduction.inner, self.rows + reduction.cols) from None
        reduction.level = inner.level
        return Info(kept, inner.level + 1)

    def wider(self, cut: Cut, value: Value, index: Index, space: list[Atom]) -> Cut:
        """The largest part of `value` that holds the cut reduction and either is a value of that reduction's rows or is
        much smaller than the loops it would be computed in again.
        """
        if cut.kept is None:
            return cut
        stack: list[Key] = [(value, index)]
        while stack:
            part, at = stack.pop()
            if part is cut.value or self.is_memory(part) or not self.holds(part, cut.value):
                continue
            small = numel(part.shape) * SMALLER <= aff.total(space)
            if not isinstance(part, Reshape | Expand | Permute | Slice) and (small or self.loops(part, at) <= cut.kept):
                return Cut(part)
            if not isinstance(part, Reduce):
                stack += self.operands(part, at)
        return cut

    def holds(self, value: Value, wanted: Value) -> bool:
        return any(found is wanted for found in ancestry(value))

    def loops(self, value: Value, index: Index) -> frozenset[Atom]:
        """What the element depends on, as far as its index and the indices of its operands say."""
        if self.is_memory(value) or isinstance(value, Reduce | Product | Iota):
            return frozenset().union(*(part.atoms() for part in index)) if index else frozenset()
        parts = [self.loops(*key) for key in self.operands(value, index)]
        return frozenset().union(*parts)

    def _reduction(self, value: Reduce, index: Index) -> Reduction:
        key = (value, index)
        if key not in self.reductions:
            free = [atom for atom in self.atoms if atom not in self.rows]
            inner = list(index)
            cols: list[Atom] = []
            for axis in value.axes:
                atoms = self._loops_of(value.arg.shape[axis], free, cols)
                cols += atoms
                position = aff.ZERO
                for atom in atoms:
                    position = position.times(atom.size).plus(aff.of(atom))
                inner[axis] = position
            self.reductions[key] = Reduction(key, tuple(inner), cols)
        return self.reductions[key]

    def _loops_of(self, size: int, free: list[Atom], used: list[Atom]) -> list[Atom]:
        """Loops of the root where they fit, so that passes have loops in common; else loops of the kernel's own."""
        for pool in (free, self.extra):
            for start in range(len(pool)):
                for end in range(start + 1, len(pool) + 1):
                    run = pool[start:end]
                    if aff.total(run) == size and not any(atom in used for atom in run):
                        return run
        atom = Atom(f"r{len(self.extra)}", size)
        self.extra.append(atom)
        return [atom]

    def first_reductions(self) -> list[Key]:
        """Reductions that are met first on the way back from the root."""
        found: dict[Key, None] = {}
        seen: set[Key] = set()
        stack: list[Key] = list(reversed(self.roots))
        while stack:
            key = stack.pop()
            if key in seen:
                continue
            seen.add(key)
            if self.is_memory(key[0]):
                continue
            if isinstance(key[0], Reduce):
                found[key] = None
            elif isinstance(key[0], Product):
                raise Cut(key[0])
            else:
                stack += reversed(self.operands(*key))
        return list(found)


def _border(value: Joined, at: Affine, distance: int) -> Exception:
    """Where the only loop of an index has to be divided; a Cut where that is not between two steps."""
    atom, step = next(iter(at.terms))
    even = len(at.terms) == 1 and step > 0 and distance % step == 0
    return aff.Straddles(atom, distance // step, value) if even else Cut(value)


def _broadcast(value: Value, index: Index) -> Index:
    """The index into an operand of fewer or smaller axes."""
    tail = index[len(index) - len(value.shape) :]
    return tuple(aff.ZERO if size == 1 else part for size, part in zip(value.shape, tail, strict=True))


def _extent(value: Source) -> int:
    if not value.shape or 0 in value.shape:
        return 1
    return 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride, strict=True))

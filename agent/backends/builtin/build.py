"""Builds one kernel: follows a value back to its loads, finds the passes, and writes the statements down."""

from dataclasses import dataclass, field
from typing import Final, Protocol

from agent.backends.builtin import affine as aff
from agent.backends.builtin.affine import Affine, Atom, Chosen
from agent.backends.builtin.ir import (
    COSTLY,
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
from agent.backends.builtin.kernels import Accumulate, Buffer, Pass, Ref, RowKernel, Stash, Statement, Store

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
class _Reduction:
    """A reduction at an index: the index of its argument, and the loops it runs over."""

    key: Key
    inner: Index
    cols: list[Atom]
    level: int = 0


@dataclass(eq=False)
class Builder:
    """One kernel for `roots`, values at indices made of the loops `atoms`. Raises Cut, NeedSplit, Unsupported."""

    plan: Plan
    roots: list[Key]
    atoms: list[Atom]
    read: set[Value] = field(default_factory=set)
    rows: list[Atom] = field(default_factory=list)
    infos: dict[Key, Info] = field(default_factory=dict)
    reductions: dict[Key, _Reduction] = field(default_factory=dict)
    chosen: dict[Key, Chosen] = field(default_factory=dict)
    refs: dict[tuple[Key, int], Ref] = field(default_factory=dict)
    statements: dict[int, list[Statement]] = field(default_factory=dict)
    extra: list[Atom] = field(default_factory=list)
    passes: list[Pass] = field(default_factory=list)
    made: int = 0

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
            return self._place(value, index)
        if isinstance(value, Expand | Permute | Slice | Reshape):
            return self.direct(*self.operands(value, index)[0])
        raise Cut(value)

    def _place(self, value: Value, index: Index) -> tuple[Buffer, Affine]:
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
            address = self._place(value, index)[1]
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
            raise self._wider(cut, value.arg, reduction.inner, self.rows + reduction.cols) from None
        reduction.level = inner.level
        return Info(kept, inner.level + 1)

    def _wider(self, cut: Cut, value: Value, index: Index, space: list[Atom]) -> Cut:
        """The largest part of `value` that holds the cut reduction and either is a value of that reduction's rows or is
        much smaller than the loops it would be computed in again.
        """
        if cut.kept is None:
            return cut
        stack: list[Key] = [(value, index)]
        while stack:
            part, at = stack.pop()
            if part is cut.value or self.is_memory(part) or not self._holds(part, cut.value):
                continue
            small = numel(part.shape) * SMALLER <= aff.total(space)
            if not isinstance(part, Reshape | Expand | Permute | Slice) and (
                small or self._loops(part, at) <= cut.kept
            ):
                return Cut(part)
            if not isinstance(part, Reduce):
                stack += self.operands(part, at)
        return cut

    def _holds(self, value: Value, wanted: Value) -> bool:
        return any(found is wanted for found in ancestry(value))

    def _loops(self, value: Value, index: Index) -> frozenset[Atom]:
        """What the element depends on, as far as its index and the indices of its operands say."""
        if self.is_memory(value) or isinstance(value, Reduce | Product | Iota):
            return frozenset().union(*(part.atoms() for part in index)) if index else frozenset()
        parts = [self._loops(*key) for key in self.operands(value, index)]
        return frozenset().union(*parts)

    def _reduction(self, value: Reduce, index: Index) -> _Reduction:
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
            self.reductions[key] = _Reduction(key, tuple(inner), cols)
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

    def _first_reductions(self) -> list[Key]:
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

    # --- the kernel --------------------------------------------------------------------------------------------------

    def kernel(self, name: str) -> RowKernel:
        firsts = self._first_reductions()
        kept = [frozenset().union(*(part.atoms() for part in index)) for _, index in firsts]
        if firsts:
            self._choose_rows(firsts, kept)
        else:
            self.rows = list(self.atoms)
        infos = [self.info(*root) for root in self.roots]
        rows = set(self.rows)
        whole = bool(firsts) and not all(info.deps <= rows for info in infos)
        whole = whole or any(atom not in self.rows for atom in self.atoms)
        few = bool(firsts) and aff.total(self.rows) < self.plan.machine.few_rows
        if few and whole:
            raise Cut(firsts[0][0])
        if few:
            for reduction in self.reductions.values():
                if reduction.level:
                    self._cut_inside(reduction)
        return self._assembled(name, infos, whole=whole, split=few)

    def _choose_rows(self, firsts: list[Key], kept: list[frozenset[Atom]]) -> None:
        """The rows of the largest reduction; the others become kernels of their own unless they agree."""
        work = [aff.total(deps) * _reduced(key[0]) for key, deps in zip(firsts, kept, strict=True)]
        best = kept[work.index(max(work))]
        for key, deps in zip(firsts, kept, strict=True):
            if deps != best:
                raise self._wider_in_roots(Cut(key[0], deps))
        self.rows = [atom for atom in self.atoms if atom in best]
        if len(self.rows) != len(best):
            raise Cut(firsts[0][0])

    def _wider_in_roots(self, cut: Cut) -> Cut:
        root = next(root for root in self.roots if self._holds(root[0], cut.value))
        return self._wider(cut, *root, self.atoms)

    def _cut_inside(self, reduction: _Reduction) -> None:
        for key, other in self.reductions.items():
            if other.level < reduction.level:
                raise Cut(key[0])

    def _assembled(self, name: str, infos: list[Info], *, whole: bool, split: bool) -> RowKernel:
        passes: dict[tuple[int, tuple[Atom, ...]], Pass] = {}
        stash_size = 0
        for reduction in sorted(self.reductions.values(), key=lambda item: item.level):
            here = self._pass(passes, reduction.level, reduction.cols)
            value = reduction.key[0]
            assert isinstance(value, Reduce)
            arg = self._ref(value.arg, reduction.inner, here)
            ref = Ref(self._name("s"), "f32", frozenset(self.rows))
            self.refs[reduction.key, -1] = ref
            here.accumulates.append(Accumulate(ref, value.op, arg))
        stores: list[Store] = []
        last: Pass | None = None
        if whole:
            level = max(info.level for info in infos)
            last = Pass(level, [atom for atom in self.atoms if atom not in self.rows])
            passes[level, (*last.cols, Atom("last", 0))] = last
            self.passes.append(last)
        for root, index in self.roots:
            address = aff.dot(index, aff.row_major(root.shape))
            store = Store(self.plan.buffers[root], address, self._ref(root, index, last))
            (last.stores if last else stores).append(store)
        ordered = sorted(passes.values(), key=lambda item: (item.level, bool(item.stores)))
        for item in ordered:
            for stash in item.stashes:
                stash_size = max(stash_size, stash.address.largest() + 1)
        return RowKernel(name, self.rows, ordered, self.statements, stores, stash_size, split)

    def _pass(self, passes: dict[tuple[int, tuple[Atom, ...]], Pass], level: int, cols: list[Atom]) -> Pass:
        ordered = [a for a in (*self.atoms, *self.extra) if a in cols]
        made = passes.setdefault((level, tuple(ordered)), Pass(level, ordered))
        if made not in self.passes:
            self.passes.append(made)
        return made

    # --- statements --------------------------------------------------------------------------------------------------

    def _name(self, letter: str) -> str:
        self.made += 1
        return f"{letter}{self.made}"

    def _ref(self, value: Value, index: Index, here: Pass | None) -> Ref:
        """The value in a pass, or among the row's values where it does not depend on the pass' loops."""
        if isinstance(value, Const):
            return Ref("", "f32", frozenset(), literal=value.value)
        key = (value, index)
        if isinstance(value, Reduce) and not self.is_memory(value):
            return self.refs[key, -1]
        info = self.info(value, index)
        of_row = info.deps <= set(self.rows)
        place = -1 if of_row or here is None else id(here)
        known = self.refs.get((key, place))
        if known is not None:
            return known
        if here is not None and not of_row and (kept := self._fetched(key, here)) is not None:
            return self._keep(key, place, kept)
        if not self.is_memory(value) and isinstance(value, Expand | Permute | Slice | Reshape | Joined):
            return self._keep(key, place, self._ref(*self.operands(value, index)[0], here))
        ref = self._computed(value, index, here, info)
        return self._keep(key, place, ref)

    def _keep(self, key: Key, place: int, ref: Ref) -> Ref:
        self.refs[key, place] = ref
        return ref

    def _computed(self, value: Value, index: Index, here: Pass | None, info: Info) -> Ref:
        target = self._statements(here, info)
        if self.is_memory(value):
            return self._load(value, index, here, info, target)
        if isinstance(value, Iota):
            ref = Ref(self._name("v"), "index", info.deps)
            target.append(Statement(ref, "iota", address=index[0].times(value.step).plus(Affine(value.start))))
            return ref
        if isinstance(value, Take):
            self._choose(value, index, here)
            return self._ref(*self.operands(value, index)[1], here)
        assert isinstance(value, Map), value
        args = tuple(self._ref(*key, here) for key in self.operands(value, index))
        ref = Ref(self._name("v"), value.type, info.deps)
        target = self._statements(here, info)
        target.append(Statement(ref, "op", op=value.op, args=args))
        return ref

    def _statements(self, here: Pass | None, info: Info) -> list[Statement]:
        if here is not None and not info.deps <= set(self.rows):
            return here.statements
        return self.statements.setdefault(info.level, [])

    def _load(self, value: Value, index: Index, here: Pass | None, info: Info, target: list[Statement]) -> Ref:
        buffer, address = self._place(value, index)
        ref = Ref(self._name("v"), value.type, info.deps)
        target.append(Statement(ref, "load", buffer=buffer, address=address))
        return ref

    def _choose(self, value: Take, index: Index, here: Pass | None) -> None:
        """The index that a gather reads, as a statement named like its atom."""
        key = self.operands(value, index)[0]
        chosen = self.chosen[key]
        info = self.info(*key)
        place = -1 if info.deps <= set(self.rows) or here is None else id(here)
        if ((value.index, (aff.of(chosen),)), place) in self.refs:
            return
        buffer, address = self._index_place(*key)
        ref = Ref(chosen.name, "index", info.deps)
        self.refs[(value.index, (aff.of(chosen),)), place] = ref
        self._statements(here, info).append(
            Statement(ref, "load", op=f"wrap {chosen.size}", buffer=buffer, address=address)
        )

    def _index_place(self, value: Value, index: Index) -> tuple[Buffer, Affine]:
        try:
            return self.direct(value, index)
        except Cut:
            raise Unsupported("an index that is computed") from None

    # --- values that later passes need again -------------------------------------------------------------------------

    def _fetched(self, key: Key, here: Pass) -> Ref | None:
        """From the row's stash, where an earlier pass over the same loops has computed something costly."""
        if not self._is_costly(key) or aff.total(here.cols) > self.plan.machine.stash_elements:
            return None
        before = [p for p in self.passes if p.level < here.level and p.cols == here.cols]
        earlier = next((p for p in before if (key, id(p)) in self.refs), None)
        if earlier is None:
            return None
        source = self.refs[key, id(earlier)]
        address = aff.ZERO
        for atom in here.cols:
            address = address.times(atom.size).plus(aff.of(atom))
        stash = next((s for s in earlier.stashes if s.ref is source), None)
        if stash is None:
            stash = Stash(self._name("kept"), source, address)
            earlier.stashes.append(stash)
        ref = Ref(self._name("v"), source.type, source.deps)
        here.statements.append(Statement(ref, "fetch", op=stash.name, address=address))
        return ref

    def _is_costly(self, key: Key) -> bool:
        """Whether reading it again is cheaper than computing it again: a function call, or two loads or more."""
        loads, seen, stack = 0, set(), [key]
        while stack:
            value, index = stack.pop()
            if (value, index) in seen or isinstance(value, Const | Reduce | Iota):
                continue
            seen.add((value, index))
            if self.info(value, index).deps <= set(self.rows):
                continue
            if self.is_memory(value):
                loads += 1
            elif isinstance(value, Map) and value.op in COSTLY:
                return True
            else:
                stack += self.operands(value, index)
        return loads > 1


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


def _reduced(value: Value) -> int:
    assert isinstance(value, Reduce)
    size = 1
    for axis in value.axes:
        size *= value.arg.shape[axis]
    return size

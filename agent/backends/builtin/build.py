"""Builds one kernel: finds the passes, and writes the statements down."""

from dataclasses import dataclass, field

from agent.backends.builtin import affine as aff
from agent.backends.builtin.affine import Affine, Atom
from agent.backends.builtin.follow import Cut, Follower, Index, Info, Key, Reduction
from agent.backends.builtin.ir import (
    COSTLY,
    Const,
    Expand,
    Iota,
    Joined,
    Map,
    Permute,
    Reduce,
    Reshape,
    Slice,
    Take,
    Unsupported,
    Value,
)
from agent.backends.builtin.kernels import Accumulate, Buffer, Pass, Ref, RowKernel, Stash, Statement, Store


@dataclass(eq=False)
class Builder(Follower):
    """One kernel for the roots. Raises Cut, NeedSplit, Straddles, Unsupported."""

    refs: dict[tuple[Key, int], Ref] = field(default_factory=dict)
    statements: dict[int, list[Statement]] = field(default_factory=dict)
    passes: list[Pass] = field(default_factory=list)
    made: int = 0

    # --- the kernel --------------------------------------------------------------------------------------------------

    def kernel(self, name: str) -> RowKernel:
        firsts = self.first_reductions()
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
        root = next(root for root in self.roots if self.holds(root[0], cut.value))
        return self.wider(cut, *root, self.atoms)

    def _cut_inside(self, reduction: Reduction) -> None:
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
        buffer, address = self.place(value, index)
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


def _reduced(value: Value) -> int:
    assert isinstance(value, Reduce)
    size = 1
    for axis in value.axes:
        size *= value.arg.shape[axis]
    return size

"""Which values of a later pass over the same columns an earlier one has computed: they can stay in registers."""

from dataclasses import dataclass, field
from typing import Any

from agent.backends.builtin.affine import Chosen
from agent.backends.builtin.kernels import Pass, Ref, RowKernel, Statement


@dataclass
class Reuse:
    """`same`: the first ref of every value that is computed again; `fetched`: what a pass takes from earlier ones, in
    order; `kept`: the statements that are left to it. Both by number of the pass.
    """

    same: dict[Ref, Ref] = field(default_factory=dict)
    fetched: list[list[Ref]] = field(default_factory=list)
    kept: list[list[Statement]] = field(default_factory=list)

    def held(self) -> set[Ref]:
        return {ref for refs in self.fetched for ref in refs}

    def most_alive(self, passes: list[Pass]) -> int:
        """The largest number of held values between two passes."""
        born = {s.ref: number for number, item in enumerate(passes) for s in item.statements}
        last = {ref: number for number, refs in enumerate(self.fetched) for ref in refs}
        return max((sum(born[ref] < n <= last[ref] for ref in last) for n in range(len(passes))), default=0)


def none(kernel: RowKernel) -> Reuse:
    """Every pass computes everything itself."""
    passes = kernel.passes
    return Reuse({}, [[] for _ in passes], [list(item.statements) for item in passes])


def find(kernel: RowKernel) -> Reuse:
    found = Reuse()
    known: dict[tuple[Any, ...], dict[Any, Ref]] = {}
    for item in kernel.passes:
        seen = known.setdefault(tuple(item.cols), {})
        new: dict[Any, Ref] = {}
        for statement in item.statements:
            key = _key(statement, found.same)
            if key in seen:
                found.same[statement.ref] = seen[key]
            else:
                new.setdefault(key, statement.ref)
        seen |= new
        _divide(item, found)
    return found


def _key(statement: Statement, same: dict[Ref, Ref]) -> Any:
    """Equal for statements that give the same value; names of results do not count."""
    args = tuple(("number", repr(a.literal)) if a.literal is not None else same.get(a, a) for a in statement.args)
    return (statement.kind, statement.op, args, statement.buffer, statement.address)


def _divide(item: Pass, found: Reuse) -> None:
    """What of a pass is left, going back from its results; indices that are read from memory are read again."""
    wanted = [a.arg for a in item.accumulates] + [store.ref for store in item.stores]
    needed: set[Ref] = set()
    indices: set[str] = set()
    fetched: dict[Ref, None] = {}
    kept: list[Statement] = []
    for ref in wanted:
        _want(ref, found, needed, fetched)
    for statement in reversed(item.statements):
        is_index = statement.op.startswith("wrap")
        if statement.ref.name not in indices if is_index else statement.ref not in needed:
            continue
        kept.insert(0, statement)
        for ref in statement.args:
            _want(ref, found, needed, fetched)
        if statement.address is not None:
            indices |= {atom.name for atom, _ in statement.address.terms if isinstance(atom, Chosen)}
    order = {s.ref: number for number, s in enumerate(item.statements)}
    found.fetched.append(sorted(fetched, key=lambda ref: order.get(ref, 0)))
    found.kept.append(kept)


def _want(ref: Ref, found: Reuse, needed: set[Ref], fetched: dict[Ref, None]) -> None:
    if ref in found.same:
        fetched[found.same[ref]] = None
    else:
        needed.add(ref)

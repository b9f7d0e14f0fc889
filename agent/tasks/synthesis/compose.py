"""One candidate from a random generator: up to five operators in one layer whose shapes fit by construction.

Chains; a binary operator takes an earlier value (residual), another branch, a parameter, or one more input. The result
holds base sizes; a device's model multiplies them (see sizing.py), so that one composition has a version for each.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from agent.tasks.synthesis import shapes
from agent.tasks.synthesis.operators import Catalogue, Domain, Operator
from agent.tasks.synthesis.shapes import Shape

TRIES: Final = 60
BASES: Final[dict[int, tuple[float, tuple[tuple[int, ...], ...]]]] = {
    2: (0.24, ((128, 256, 384, 512, 768, 1024),)),
    3: (0.28, ((32, 48, 64, 96, 128), (64, 96, 128, 192, 256))),
    4: (0.36, ((8, 16, 24, 32, 48, 64), (14, 16, 20, 28, 32, 48, 56))),
    5: (0.12, ((4, 8, 12, 16), (6, 8, 12), (12, 16, 24))),
}
FEATURES: Final = {"last": (64, 96, 128, 192, 256, 384), "channels": (8, 16, 24, 32, 48, 64)}
FAMILIES: Final = {
    "matrix product": 5.0, "convolution": 6.0, "attention": 0.8, "recurrence": 0.15, "normalization": 4.0,
    "pooling": 2.0, "softmax": 1.2, "reduction": 2.0, "scan": 0.6, "activation": 5.0, "pointwise": 4.0,
    "combination": 3.0, "resizing": 1.0, "movement": 0.5,
}  # fmt: skip
Operand = tuple[Literal["value", "input", "weight"], int]


@dataclass(frozen=True)
class Node:
    """One operator; `first` is the number of the value it takes, values being numbered from 0, the first input."""

    operator: Operator
    picks: dict[str, Any]
    first: int
    second: Operand | None = None


@dataclass(frozen=True)
class Composition:
    """`rank` and `base` (sizes behind the batch) of the first input; further inputs have the shapes of `extra` values.

    `features` says which picks are numbers of features, which sizing multiplies.
    """

    rank: int
    base: Shape
    domain: Domain
    nodes: tuple[Node, ...]
    extra_inputs: tuple[int, ...] = ()
    weights: tuple[int, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(node.operator.name for node in self.nodes)

    def values(self, batch: int) -> list[Shape]:
        """Shapes of all values, the first input's first."""
        made: list[Shape] = [(batch, *self.base)]
        for node in self.nodes:
            made.append(shapes.after(node.operator, made[node.first], node.picks))
        return made


class _NothingFits(Exception):
    """This try led nowhere; another one may."""


def compose(rng: random.Random, known: Catalogue, *, operators: int, source: str = "torch") -> Composition | None:
    """A composition of that many operators, or None where no try succeeded."""
    pool = known.of(source)
    for _ in range(TRIES):
        try:
            return _try(rng, pool, operators)
        except _NothingFits:
            continue
    return None


def _try(rng: random.Random, pool: Sequence[Operator], count: int) -> Composition:
    rank = rng.choices(list(BASES), [weight for weight, _ in BASES.values()])[0]
    choices = BASES[rank][1]
    base: Shape = tuple(rng.choice(values) for values in choices)
    base = (*base, *([base[-1]] * (rank - 1 - len(base))))
    layer = _Layer(rng, pool, Composition(rank, base, "any", ()))
    branching = count >= 3 and rng.random() < 0.3
    while len(layer.made.nodes) < count:
        left = count - len(layer.made.nodes)
        if branching and left >= 3:
            layer.branch()
            branching = False
        else:
            layer.add()
    return layer.made


class _Layer:
    """A composition that grows; every value is used, because each operator takes the last one."""

    def __init__(self, rng: random.Random, pool: Sequence[Operator], start: Composition) -> None:
        self.rng = rng
        self.pool = pool
        self.made = start
        self.ranges: list[Domain] = ["any"]

    def add(self, *, at: int | None = None, keep_shape: Shape | None = None, operands: int | None = None) -> None:
        """One more operator on value `at` (default: the last)."""
        at = len(self.made.nodes) if at is None else at
        shape = self.made.values(2)[at]
        for _ in range(TRIES):
            operator = self._pick(at, operands)
            picks = self._picks(operator)
            if not shapes.fits(operator, shape, picks) or not self._sensible(operator, at):
                continue
            if keep_shape is not None and shapes.after(operator, shape, picks) != keep_shape:
                continue
            second = self._second(operator, at) if operator.operands == 2 else None
            if operator.operands == 2 and second is None:
                continue
            self._put(Node(operator, picks, at, second))
            return
        raise _NothingFits

    def branch(self) -> None:
        """Two operators on one value, and one that brings them together."""
        at = len(self.made.nodes)
        self.add(at=at, operands=1)
        one = len(self.made.nodes)
        self.add(at=at, keep_shape=self.made.values(2)[one], operands=1)
        other = len(self.made.nodes)
        shape = self.made.values(2)[other]
        joining = [operator for operator in self.pool if operator.operands == 2 and len(shape) in operator.ranks]
        if not joining:
            raise _NothingFits
        operator = self.rng.choice(joining)
        self._put(Node(operator, self._picks(operator), other, ("value", one)))

    def _pick(self, at: int, operands: int | None) -> Operator:
        usable = [operator for operator in self.pool if operands in (None, operator.operands)]
        families = sorted({operator.family for operator in usable})
        weights = [FAMILIES.get(family, 1.0) for family in families]
        family = self.rng.choices(families, weights)[0]
        bases = sorted({operator.base for operator in usable if operator.family == family})
        base = self.rng.choice(bases)
        return self.rng.choice([operator for operator in usable if operator.family == family and operator.base == base])

    def _picks(self, operator: Operator) -> dict[str, Any]:
        place = next(iter(operator.sizes.values()), "last")
        made: dict[str, Any] = {}
        for name, values in operator.picks.items():
            made[name] = self.rng.choice(FEATURES[place] if values == "features" else values)
        return made

    def _sensible(self, operator: Operator, at: int) -> bool:
        """Its numbers can be given to it, it does not repeat the last operator, and it changes them."""
        have = self.ranges[at]
        if at == 0 and len(self.made.nodes) == 0:
            have = operator.domain
        allowed = {"any": ("any", "positive", "unit"), "positive": ("positive", "unit"), "unit": ("unit",)}
        if have not in allowed[operator.domain] or have in operator.same_on:
            return False
        return at == 0 or self.made.nodes[at - 1].operator.base != operator.base

    def _second(self, operator: Operator, at: int) -> Operand | None:
        values = self.made.values(2)
        earlier = [number for number in range(at) if values[number] == values[at]]
        options: list[Operand] = [("value", self.rng.choice(earlier))] * 3 if earlier else []
        if not self.made.extra_inputs:
            options.append(("input", at))
        if not operator.whole:
            options += [("weight", at)] * 2
        return self.rng.choice(options) if options else None

    def _put(self, node: Node) -> None:
        first = not self.made.nodes
        made = replace(self.made, nodes=(*self.made.nodes, node))
        if first:
            made = replace(made, domain=node.operator.domain)
            self.ranges[0] = node.operator.domain
        if node.second is not None and node.second[0] == "input":
            made = replace(made, extra_inputs=(*made.extra_inputs, node.second[1]))
        if node.second is not None and node.second[0] == "weight":
            made = replace(made, weights=(*made.weights, node.second[1]))
        self.made = made
        self.ranges.append(self._range(node))

    def _range(self, node: Node) -> Domain:
        if node.operator.family in ("movement", "pooling", "resizing"):
            return self.ranges[node.first]
        return "any" if node.operator.operands == 2 else node.operator.range

"""Loop variables (atoms) and the affine index expressions made of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.backends.builtin.ir import Shape, Value


@dataclass(eq=False)
class Atom:
    """One loop of `size` steps."""

    name: str
    size: int


@dataclass(eq=False)
class Chosen(Atom):
    """Not a loop but an index read from memory; `deps` are the loops that it depends on."""

    deps: frozenset[Atom] = field(default_factory=frozenset)


@dataclass(frozen=True)
class Affine:
    """const + sum of coefficient * atom; zero coefficients are left out."""

    const: int = 0
    terms: frozenset[tuple[Atom, int]] = frozenset()

    def coefficient(self, atom: Atom) -> int:
        return next((c for a, c in self.terms if a is atom), 0)

    def atoms(self) -> frozenset[Atom]:
        """The loops that the value depends on."""
        found: set[Atom] = set()
        for atom, _ in self.terms:
            found |= atom.deps if isinstance(atom, Chosen) else {atom}
        return frozenset(found)

    def plus(self, other: "Affine") -> "Affine":
        merged = dict(self.terms)
        for atom, coefficient in other.terms:
            merged[atom] = merged.get(atom, 0) + coefficient
        return affine(self.const + other.const, merged)

    def times(self, factor: int) -> "Affine":
        return affine(self.const * factor, {atom: c * factor for atom, c in self.terms})

    def smallest(self) -> int:
        return self.const + sum(min(0, c * (a.size - 1)) for a, c in self.terms if not isinstance(a, Chosen))

    def largest(self) -> int:
        """The largest value; chosen indices count as zero."""
        return self.const + sum(max(0, c * (a.size - 1)) for a, c in self.terms if not isinstance(a, Chosen))


ZERO = Affine()


def affine(const: int, terms: Mapping[Atom, int]) -> Affine:
    return Affine(const, frozenset((atom, c) for atom, c in terms.items() if c))


def of(atom: Atom) -> Affine:
    return affine(0, {atom: 1})


def row_major(shape: Shape) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def dot(index: Sequence[Affine], strides: Sequence[int]) -> Affine:
    """The address of an element."""
    address = ZERO
    for part, stride in zip(index, strides, strict=True):
        address = address.plus(part.times(stride))
    return address


class NeedSplit(Exception):
    """An atom must become two, the inner of `inner` steps, before a reshape can be expressed."""

    def __init__(self, atom: Atom, inner: int) -> None:
        super().__init__(f"{atom.name} by {inner}")
        self.atom = atom
        self.inner = inner
        self.value: Value | None = None  # the reshape, once it is known


class Straddles(Exception):
    """A loop crosses the border of two joined pieces, after `steps` of its steps."""

    def __init__(self, atom: Atom, steps: int, value: Value) -> None:
        super().__init__(f"{atom.name} at {steps}")
        self.atom = atom
        self.steps = steps
        self.value = value  # what is joined


class NotAffine(Exception):
    """A reshape that no affine index expresses."""


def reshaped(index: Sequence[Affine], old: Shape, new: Shape) -> tuple[Affine, ...]:
    """The index into shape `old` of the element that `index` names in `new`. Raises NeedSplit or NotAffine."""
    linear = dot(index, row_major(new))
    if any(isinstance(atom, Chosen) for atom, _ in linear.terms):
        return _through_chosen(index, old, new)
    parts: list[Affine] = []
    rest, left = linear.const, set(linear.terms)
    for size, stride in zip(old, row_major(old), strict=True):
        whole, rest = divmod(rest, stride)
        part = affine(whole, {})
        for atom, c in sorted(left, key=lambda term: -term[1]):
            if c % stride == 0 and c < stride * size:
                part = part.plus(affine(0, {atom: c // stride}))
                left.discard((atom, c))
        parts.append(part)
        _check(part, size)
    if left:
        raise NotAffine
    return tuple(parts)


def _check(part: Affine, size: int) -> None:
    if part.smallest() >= 0 and part.largest() < size:
        return
    if part.const or any(c < 0 for _, c in part.terms):
        raise NotAffine
    for atom, c in part.terms:
        if c * (atom.size - 1) >= size:
            inner = -(-size // c)
            if size % c or atom.size % inner or inner >= atom.size:
                raise NotAffine
            raise NeedSplit(atom, inner)
    raise NotAffine


def _through_chosen(index: Sequence[Affine], old: Shape, new: Shape) -> tuple[Affine, ...]:
    """Only axes of size 1 may come or go beside an index that is read from memory."""
    wide_old = [size for size in old if size != 1]
    wide_new = [(size, part) for size, part in zip(new, index, strict=True) if size != 1]
    if wide_old != [size for size, _ in wide_new]:
        raise NotAffine
    rest = iter([part for _, part in wide_new])
    return tuple(ZERO if size == 1 else next(rest) for size in old)


def total(atoms: Iterable[Atom]) -> int:
    size = 1
    for atom in atoms:
        size *= atom.size
    return size

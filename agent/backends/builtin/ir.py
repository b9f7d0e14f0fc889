"""The typed intermediate form: tensors as pointwise expressions, reductions, views, gathers and products of others.

Every value has a shape and one of three element types: f32, bool, or index (integers that only select or are compared).
Reductions keep their axes as size 1; broadcasting is implicit, as in torch.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Type = Literal["f32", "bool", "index"]
Shape = tuple[int, ...]

COSTLY: Final = frozenset(
    [
        "exp",
        "log",
        "log1p",
        "expm1",
        "sin",
        "cos",
        "tanh",
        "sigmoid",
        "erf",
        "sqrt",
        "rsqrt",
        "div",
        "recip",
        "pow",
        "silu",
        "gelu",
        "gelu_tanh",
        "softplus",
    ]
)


class Unsupported(Exception):
    """Something that this policy has no kernel for; the text names the operator."""


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor that does not exist yet. Compared by identity."""

    shape: Shape
    type: Type


@dataclass(frozen=True, eq=False)
class Source(Value):
    """A tensor in memory; `stride` and `offset` in elements, `dtype` as in memory."""

    name: str
    dtype: str
    stride: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True, eq=False)
class Const(Value):
    value: float


@dataclass(frozen=True, eq=False)
class Iota(Value):
    """start + step * (position along the only axis)."""

    start: int
    step: int


@dataclass(frozen=True, eq=False)
class Map(Value):
    """A pointwise operation on broadcast operands."""

    op: str
    args: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class Reduce(Value):
    """sum, max, min or prod over `axes`, which keep size 1."""

    op: str
    arg: Value
    axes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Reshape(Value):
    arg: Value


@dataclass(frozen=True, eq=False)
class Permute(Value):
    arg: Value
    axes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Expand(Value):
    arg: Value


@dataclass(frozen=True, eq=False)
class Slice(Value):
    """Element i of `axis` is element start + step * i of the argument."""

    arg: Value
    axis: int
    start: int
    step: int


@dataclass(frozen=True, eq=False)
class Joined(Value):
    """Pieces one after the other along `axis`."""

    pieces: tuple[Value, ...]
    axis: int


@dataclass(frozen=True, eq=False)
class Take(Value):
    """arg with `axis` replaced by the axes of `index`; with `along`, index has arg's rank and selects element-wise."""

    arg: Value
    axis: int
    index: Value
    along: bool = False


@dataclass(frozen=True, eq=False)
class Product(Value):
    """Matrix product [batch, m, k] x [batch, k, n], batch axes broadcast."""

    left: Value
    right: Value


def numel(shape: Sequence[int]) -> int:
    return math.prod(shape)


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The common shape. Raises Unsupported where there is none (torch would have refused it)."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    out = []
    for sizes in zip(*padded, strict=True):
        wide = {size for size in sizes if size != 1}
        if len(wide) > 1:
            raise Unsupported(f"shapes {shapes} do not broadcast")
        out.append(wide.pop() if wide else 1)
    return tuple(out)


_FOLD: Final[dict[str, Callable[..., float]]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "max": max,
    "min": min,
}
_TYPES: Final = {
    **dict.fromkeys(["lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not", "xor", "isnan"], "bool"),
}


def const(value: float) -> Const:
    return Const((), "f32", float(value))


def map_(op: str, *args: Value) -> Value:
    """Raises Unsupported for shapes that do not broadcast."""
    if op in _FOLD and all(isinstance(arg, Const) for arg in args):
        folded = _FOLD[op](*(arg.value for arg in args if isinstance(arg, Const)))
        return Const(broadcast([arg.shape for arg in args]), "f32", float(folded))
    if op == "mul" and len(args) == 2:
        for one, other in (args, args[::-1]):
            if isinstance(one, Const) and one.value == 1.0 and broadcast([a.shape for a in args]) == other.shape:
                return as_float(other)
    kind: Type = "bool" if op in _TYPES else "f32"
    if op == "where":
        kind = "f32" if args[1].type != "bool" or args[2].type != "bool" else "bool"
        args = (as_bool(args[0]), *((as_float(a) if kind == "f32" else a) for a in args[1:]))
    elif op in ("and", "or", "not", "xor"):
        args = tuple(map(as_bool, args))
    elif op not in ("to_float", "to_bool"):
        args = tuple(map(as_float, args))
    return Map(broadcast([arg.shape for arg in args]), kind, op, args)


def as_float(value: Value) -> Value:
    return value if value.type == "f32" else Map(value.shape, "f32", "to_float", (value,))


def as_bool(value: Value) -> Value:
    return value if value.type == "bool" else Map(value.shape, "bool", "ne", (as_float(value), const(0.0)))


def reduce_(op: str, arg: Value, axes: Sequence[int]) -> Value:
    arg = as_float(arg)
    axes = tuple(sorted({axis % len(arg.shape) for axis in axes})) if arg.shape else ()
    axes = tuple(axis for axis in axes if arg.shape[axis] != 1)
    if not axes:
        return arg
    inner = _inner_axes(arg, axes)
    if inner:
        return reduce_(op, reduce_(op, arg, inner), tuple(axis for axis in axes if axis not in inner))
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(arg.shape))
    return Reduce(shape, "f32", op, arg, axes)


def _inner_axes(arg: Value, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Axes that a reduction inside the argument runs over as well: reduced first, they share its rows."""
    for value in ancestry(arg):
        if isinstance(value, Reduce) and len(value.arg.shape) == len(arg.shape) and set(value.axes) < set(axes):
            return value.axes
    return ()


def ancestry(value: Value) -> Iterator[Value]:
    """The value and everything it is made of, each once."""
    seen: set[int] = set()
    stack = [value]
    while stack:
        found = stack.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        stack += reversed(operands_of(found))


def operands_of(value: Value) -> tuple[Value, ...]:
    match value:
        case Map(args=args):
            return args
        case Product(left=left, right=right):
            return (left, right)
        case Joined(pieces=pieces):
            return pieces
        case Take(arg=arg, index=index):
            return (arg, index)
        case Reduce(arg=arg) | Reshape(arg=arg) | Permute(arg=arg) | Expand(arg=arg) | Slice(arg=arg):
            return (arg,)
    return ()


def reshape(arg: Value, shape: Shape) -> Value:
    if arg.shape == shape:
        return arg
    if isinstance(arg, Const):
        return Const(shape, arg.type, arg.value)
    return Reshape(shape, arg.type, arg.arg if isinstance(arg, Reshape) else arg)


def permute(arg: Value, axes: Sequence[int]) -> Value:
    order = tuple(axis % len(arg.shape) for axis in axes)
    if order == tuple(range(len(order))):
        return arg
    return Permute(tuple(arg.shape[axis] for axis in order), arg.type, arg, order)


def expand(arg: Value, shape: Shape) -> Value:
    return arg if arg.shape == shape else Expand(shape, arg.type, arg)


def slice_(arg: Value, axis: int, start: int, step: int, size: int) -> Value:
    axis %= len(arg.shape)
    if start == 0 and step == 1 and size == arg.shape[axis]:
        return arg
    shape = (*arg.shape[:axis], size, *arg.shape[axis + 1 :])
    return Slice(shape, arg.type, arg, axis, start, step)


def joined(pieces: Sequence[Value], axis: int) -> Value:
    pieces = [piece for piece in pieces if numel(piece.shape)]
    if len(pieces) == 1:
        return pieces[0]
    axis %= len(pieces[0].shape)
    if len({piece.type for piece in pieces}) > 1:
        pieces = [as_float(piece) for piece in pieces]
    first = pieces[0]
    shape = (*first.shape[:axis], sum(piece.shape[axis] for piece in pieces), *first.shape[axis + 1 :])
    return Joined(shape, first.type, tuple(pieces), axis)


def take(arg: Value, axis: int, index: Value) -> Value:
    axis %= len(arg.shape)
    shape = (*arg.shape[:axis], *index.shape, *arg.shape[axis + 1 :])
    return Take(shape, arg.type, arg, axis, index)


def take_along(arg: Value, axis: int, index: Value) -> Value:
    return Take(index.shape, arg.type, arg, axis % len(arg.shape), index, along=True)


def product(left: Value, right: Value) -> Value:
    if left.shape[-2] == 1 or right.shape[-1] == 1:
        # A matrix and a vector: nothing is used twice, so that it is a reduction like any other.
        wide = reshape(left, (*left.shape[:-1], 1, left.shape[-1]))
        turned = permute(right, (*range(len(right.shape) - 2), -1, -2))
        other = reshape(turned, (*turned.shape[:-2], 1, *turned.shape[-2:]))
        summed = reduce_("sum", map_("mul", wide, other), [-1])
        return reshape(summed, summed.shape[:-1])
    batch = broadcast([left.shape[:-2], right.shape[:-2]])
    return Product((*batch, left.shape[-2], right.shape[-1]), "f32", as_float(left), as_float(right))

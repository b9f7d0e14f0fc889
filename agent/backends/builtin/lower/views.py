"""Views: reshapes, permutations, slices, broadcasts and gathers. None of them computes."""

from collections.abc import Sequence
from typing import Any

from agent.backends.builtin.ir import (
    Iota,
    Unsupported,
    Value,
    broadcast,
    const,
    expand,
    joined,
    map_,
    numel,
    permute,
    reshape,
    slice_,
    take,
    take_along,
)
from agent.backends.builtin.lower.registry import Pick, lowers


@lowers("view", "reshape", "_unsafe_view", "_reshape_copy", "view_copy")
def _view(a: Value, shape: Sequence[int]) -> Value:
    known = numel([size for size in shape if size != -1])
    return reshape(a, tuple(numel(a.shape) // max(known, 1) if size == -1 else size for size in shape))


@lowers("flatten")
def _flatten(a: Value, start: int = 0, end: int = -1) -> Value:
    if not a.shape:
        return reshape(a, (1,))
    start, end = start % len(a.shape), end % len(a.shape)
    return reshape(a, (*a.shape[:start], numel(a.shape[start : end + 1]), *a.shape[end + 1 :]))


@lowers("unflatten")
def _unflatten(a: Value, dim: int, sizes: Sequence[int]) -> Value:
    dim %= len(a.shape)
    known = numel([size for size in sizes if size != -1])
    parts = [a.shape[dim] // known if size == -1 else size for size in sizes]
    return reshape(a, (*a.shape[:dim], *parts, *a.shape[dim + 1 :]))


@lowers("squeeze")
def _squeeze(a: Value, dim: int | Sequence[int] | None = None) -> Value:
    rank = max(len(a.shape), 1)
    chosen = range(rank) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = {axis % rank for axis in chosen}
    return reshape(a, tuple(size for axis, size in enumerate(a.shape) if axis not in gone or size != 1))


@lowers("unsqueeze")
def unsqueeze(a: Value, dim: int) -> Value:
    dim %= len(a.shape) + 1
    return reshape(a, (*a.shape[:dim], 1, *a.shape[dim:]))


@lowers("transpose", "swapaxes", "swapdims")
def transpose(a: Value, first: int, second: int) -> Value:
    order = list(range(len(a.shape)))
    if order:
        order[first], order[second] = order[second], order[first]
    return permute(a, order)


@lowers("t", "numpy_T", "mT", "matrix_H", "adjoint")
def _t(a: Value) -> Value:
    return a if len(a.shape) < 2 else transpose(a, -1, -2)


@lowers("permute")
def _permute(a: Value, dims: Sequence[int]) -> Value:
    return permute(a, dims)


@lowers("movedim", "moveaxis")
def _movedim(a: Value, source: int | Sequence[int], target: int | Sequence[int]) -> Value:
    rank = len(a.shape)
    sources = [s % rank for s in ([source] if isinstance(source, int) else source)]
    targets = [t % rank for t in ([target] if isinstance(target, int) else target)]
    rest = iter([axis for axis in range(rank) if axis not in sources])
    return permute(a, [sources[targets.index(axis)] if axis in targets else next(rest) for axis in range(rank)])


@lowers("expand", "broadcast_to")
def _expand(a: Value, shape: Sequence[int], **_kwargs: Any) -> Value:
    padded = (*(1,) * (len(shape) - len(a.shape)), *a.shape)
    wanted = tuple(old if new == -1 else new for old, new in zip(padded, shape, strict=True))
    return expand(reshape(a, padded), wanted)


@lowers("expand_as")
def _expand_as(a: Value, other: Value) -> Value:
    return _expand(a, other.shape)


@lowers("broadcast_tensors")
def _broadcast_tensors(values: Sequence[Value]) -> Pick:
    shape = broadcast([value.shape for value in values])
    return Pick(tuple(_expand(value, shape) for value in values), "aten.broadcast_tensors")


@lowers("slice")
def _slice(a: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Value:
    size = a.shape[dim]
    chosen = range(size)[slice(start, end, step)]
    return slice_(a, dim, chosen.start, step, len(chosen))


@lowers("narrow")
def _narrow(a: Value, dim: int, start: int, length: int) -> Value:
    return slice_(a, dim, start % max(a.shape[dim], 1), 1, length)


@lowers("select")
def select(a: Value, dim: int, index: int) -> Value:
    dim %= len(a.shape)
    part = slice_(a, dim, index % a.shape[dim], 1, 1)
    return reshape(part, (*a.shape[:dim], *a.shape[dim + 1 :]))


@lowers("chunk")
def _chunk(a: Value, chunks: int, dim: int = 0) -> Pick:
    return _split(a, -(-a.shape[dim] // chunks), dim)


@lowers("split", "split_with_sizes", "unsafe_split")
def _split(a: Value, sizes: int | Sequence[int], dim: int = 0) -> Pick:
    total = a.shape[dim]
    if isinstance(sizes, int):
        sizes = [min(sizes, total - at) for at in range(0, total, sizes)]
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    return Pick(tuple(slice_(a, dim, at, 1, n) for at, n in zip(starts, sizes, strict=True)), "aten.split")


@lowers("unbind")
def _unbind(a: Value, dim: int = 0) -> Pick:
    return Pick(tuple(select(a, dim, k) for k in range(a.shape[dim])), "aten.unbind")


@lowers("getitem")
def _getitem(a: Any, index: int) -> Value:
    if not isinstance(a, Pick):
        raise Unsupported("an operator with several results")
    part = a.parts[index]
    if part is None:
        raise Unsupported(a.why)
    return part


@lowers("cat", "concat", "concatenate")
def _cat(values: Sequence[Value], dim: int = 0) -> Value:
    return joined(values, dim)


@lowers("stack")
def _stack(values: Sequence[Value], dim: int = 0) -> Value:
    return joined([unsqueeze(value, dim) for value in values], dim)


@lowers("slice_scatter")
def _slice_scatter(
    a: Value, part: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    size = a.shape[dim]
    chosen = range(size)[slice(start, end, step)]
    if step != 1:
        raise Unsupported("aten.slice_scatter in steps")
    after = slice_(a, dim, chosen.stop, 1, size - chosen.stop)
    return joined([slice_(a, dim, 0, 1, chosen.start), part, after], dim) if len(chosen) else a


@lowers("select_scatter")
def _select_scatter(a: Value, part: Value, dim: int, index: int) -> Value:
    at = index % a.shape[dim]
    return _slice_scatter(a, unsqueeze(part, dim), dim, at, at + 1)


@lowers("copy", "fill", "expand_copy")
def _copy(a: Value, b: Value | float, *_rest: Any) -> Value:
    """What assigning into a part of a tensor becomes: `b` in the shape of `a`."""
    return _expand(b if isinstance(b, Value) else const(float(b)), a.shape)


@lowers("index_put")
def _index_put(a: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    (mask, *others) = indices
    if others or mask is None or mask.type != "bool" or values.shape not in ((), (1,)) or accumulate:
        raise Unsupported("aten.index_put other than a number where a mask says so")
    wide = reshape(mask, (*mask.shape, *(1,) * (len(a.shape) - len(mask.shape))))
    return map_("where", wide, reshape(values, ()), a)


@lowers("roll")
def _roll(a: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    if not dims:
        raise Unsupported("aten.roll of the flattened tensor")
    for shift, dim in zip(shifts, dims, strict=True):
        size = a.shape[dim]
        cut = -shift % size
        if cut:
            a = joined([slice_(a, dim, cut, 1, size - cut), slice_(a, dim, 0, 1, cut)], dim)
    return a


@lowers("flip")
def _flip(a: Value, dims: Sequence[int]) -> Value:
    for dim in dims:
        a = slice_(a, dim, a.shape[dim] - 1, -1, a.shape[dim])
    return a


@lowers("repeat")
def _repeat(a: Value, repeats: Sequence[int]) -> Value:
    padded = (1,) * (len(repeats) - len(a.shape)) + a.shape
    double = tuple(n for size in padded for n in (1, size))
    wide = tuple(n for times, size in zip(repeats, padded, strict=True) for n in (times, size))
    return reshape(expand(reshape(a, double), wide), tuple(r * s for r, s in zip(repeats, padded, strict=True)))


@lowers("repeat_interleave")
def _repeat_interleave(a: Value, repeats: Any, dim: int | None = None, **_kwargs: Any) -> Value:
    if not isinstance(repeats, int) or dim is None:
        raise Unsupported("aten.repeat_interleave with a tensor of counts")
    dim %= len(a.shape)
    before, size, after = a.shape[:dim], a.shape[dim], a.shape[dim + 1 :]
    wide = expand(reshape(a, (*before, size, 1, *after)), (*before, size, repeats, *after))
    return reshape(wide, (*before, size * repeats, *after))


@lowers("pixel_shuffle")
def _pixel_shuffle(a: Value, r: int) -> Value:
    *batch, c, h, w = a.shape
    parts = reshape(a, (*batch, c // (r * r), r, r, h, w))
    k = len(batch)
    order = [*range(k), k, k + 3, k + 1, k + 4, k + 2]
    return reshape(permute(parts, order), (*batch, c // (r * r), h * r, w * r))


@lowers("arange")
def _arange(*args: Any, **_kwargs: Any) -> Value:
    if not all(isinstance(arg, int) for arg in args):
        raise Unsupported("aten.arange of fractions")
    start, end, step = (0, *args, 1) if len(args) == 1 else (*args, 1) if len(args) == 2 else args
    return Iota((len(range(start, end, step)),), "index", start, step)


@lowers("embedding")
def _embedding(weight: Value, index: Value, *_rest: Any) -> Value:
    return take(weight, 0, index)


@lowers("index_select")
def _index_select(a: Value, dim: int, index: Value) -> Value:
    return take(a, dim, index)


@lowers("gather")
def _gather(a: Value, dim: int, index: Value, **_kwargs: Any) -> Value:
    return take_along(a, dim, index)


@lowers("index")
def _index(a: Value, indices: Sequence[Value | None]) -> Value:
    chosen = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(chosen) != 1 or chosen[0][1].type != "index":
        raise Unsupported("aten.index with several indices or a mask")
    return take(a, *chosen[0])


@lowers("tril")
def _tril(a: Value, diagonal: int = 0) -> Value:
    return map_("where", map_("le", _offsets(a), const(diagonal)), a, const(0.0))


@lowers("triu")
def _triu(a: Value, diagonal: int = 0) -> Value:
    return map_("where", map_("ge", _offsets(a), const(diagonal)), a, const(0.0))


def _offsets(a: Value) -> Value:
    """Column minus row."""
    rows, columns = (Iota((size,), "index", 0, 1) for size in a.shape[-2:])
    return map_("sub", columns, reshape(rows, (a.shape[-2], 1)))

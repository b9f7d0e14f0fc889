"""Reductions, softmax and the normalisations."""

import math
from collections.abc import Sequence
from typing import Any

from agent.backends.builtin.ir import Unsupported, Value, const, map_, numel, reduce_, reshape
from agent.backends.builtin.lower.pointwise import minus, mul, over, plus, square, where
from agent.backends.builtin.lower.registry import Pick, lowers

Dims = int | Sequence[int] | None


def axes_of(a: Value, dim: Dims) -> tuple[int, ...]:
    rank = len(a.shape)
    if dim is None or (not isinstance(dim, int) and not dim):
        return tuple(range(rank))
    return tuple(sorted({d % rank for d in ([dim] if isinstance(dim, int) else dim)})) if rank else ()


def _kept(reduced: Value, a: Value, axes: Sequence[int], keepdim: bool) -> Value:
    if keepdim:
        return reduced
    return reshape(reduced, tuple(size for axis, size in enumerate(a.shape) if axis not in axes))


def _count(a: Value, axes: Sequence[int]) -> int:
    return max(1, numel([a.shape[axis] for axis in axes]))


def mean_over(a: Value, axes: Sequence[int]) -> Value:
    """Keeps the axes."""
    return mul(reduce_("sum", a, axes), 1.0 / _count(a, axes))


@lowers("sum", "nansum")
def _sum(a: Value, dim: Dims = None, keepdim: bool = False, **_kwargs: Any) -> Value:
    axes = axes_of(a, dim)
    return _kept(reduce_("sum", a, axes), a, axes, keepdim)


@lowers("mean")
def _mean(a: Value, dim: Dims = None, keepdim: bool = False, **_kwargs: Any) -> Value:
    axes = axes_of(a, dim)
    return _kept(mean_over(a, axes), a, axes, keepdim)


@lowers("prod")
def _prod(a: Value, dim: Dims = None, keepdim: bool = False, **_kwargs: Any) -> Value:
    axes = axes_of(a, dim)
    return _kept(reduce_("prod", a, axes), a, axes, keepdim)


@lowers("amax")
def _amax(a: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    axes = axes_of(a, dim)
    return _kept(reduce_("max", a, axes), a, axes, keepdim)


@lowers("amin")
def _amin(a: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    axes = axes_of(a, dim)
    return _kept(reduce_("min", a, axes), a, axes, keepdim)


@lowers("max")
def _max(a: Value, dim: Any = None, keepdim: bool = False) -> Any:
    return _extreme(a, dim, keepdim, "max")


@lowers("min")
def _min(a: Value, dim: Any = None, keepdim: bool = False) -> Any:
    return _extreme(a, dim, keepdim, "min")


def _extreme(a: Value, dim: Any, keepdim: bool, op: str) -> Any:
    if isinstance(dim, Value):
        return map_(op, a, dim)
    axes = axes_of(a, dim)
    found = _kept(reduce_(op, a, axes), a, axes, keepdim)
    return found if dim is None else Pick((found, None), f"the indices of aten.{op}")


@lowers("var")
def _var(a: Value, dim: Any = None, correction: Any = None, keepdim: bool = False, **kwargs: Any) -> Value:
    return _variance(a, dim, _correction(dim, correction, kwargs), keepdim)[0]


@lowers("std")
def _std(a: Value, dim: Any = None, correction: Any = None, keepdim: bool = False, **kwargs: Any) -> Value:
    return map_("sqrt", _variance(a, dim, _correction(dim, correction, kwargs), keepdim)[0])


@lowers("var_mean")
def _var_mean(a: Value, dim: Any = None, correction: Any = None, keepdim: bool = False, **kwargs: Any) -> Pick:
    return Pick(_variance(a, dim, _correction(dim, correction, kwargs), keepdim), "aten.var_mean")


@lowers("std_mean")
def _std_mean(a: Value, dim: Any = None, correction: Any = None, keepdim: bool = False, **kwargs: Any) -> Pick:
    variance, mean = _variance(a, dim, _correction(dim, correction, kwargs), keepdim)
    return Pick((map_("sqrt", variance), mean), "aten.std_mean")


def _correction(dim: Any, correction: Any, kwargs: dict[str, Any]) -> float:
    """The older overloads say `unbiased` in the same place, alone or after the axes."""
    if "unbiased" in kwargs:
        return float(kwargs["unbiased"])
    if isinstance(dim, bool):
        return float(dim)
    return 1.0 if correction is None else float(correction)


def _variance(a: Value, dim: Any, correction: float, keepdim: bool) -> tuple[Value, Value]:
    axes = axes_of(a, None if isinstance(dim, bool) else dim)
    mean = mean_over(a, axes)
    spread = reduce_("sum", square(minus(a, mean)), axes)
    variance = mul(spread, 1.0 / max(_count(a, axes) - correction, 1e-30))
    return _kept(variance, a, axes, keepdim), _kept(mean, a, axes, keepdim)


@lowers("linalg_vector_norm")
def _vector_norm(a: Value, ord: float = 2, dim: Dims = None, keepdim: bool = False, **_kw: Any) -> Value:
    axes = axes_of(a, dim)
    return _kept(norm_over(a, float(ord), axes), a, axes, keepdim)


@lowers("norm", "frobenius_norm")
def _norm(a: Value, p: float | None = 2, dim: Dims = None, keepdim: bool = False, **_kwargs: Any) -> Value:
    axes = axes_of(a, dim)
    return _kept(norm_over(a, 2.0 if p is None else float(p), axes), a, axes, keepdim)


def norm_over(a: Value, p: float, axes: Sequence[int]) -> Value:
    size = map_("abs", a)
    if p == 1:
        return reduce_("sum", size, axes)
    if p == 2:
        return map_("sqrt", reduce_("sum", square(a), axes))
    if abs(p) == math.inf:
        return reduce_("max" if p > 0 else "min", size, axes)
    raise Unsupported(f"a norm of order {p:g}")


@lowers("logsumexp", "special_logsumexp")
def _logsumexp(a: Value, dim: Dims, keepdim: bool = False) -> Value:
    axes = axes_of(a, dim)
    top = reduce_("max", a, axes)
    # Where the whole row is infinite, the infinity itself is the result.
    safe = where(map_("eq", map_("abs", top), const(math.inf)), 0.0, top)
    total = plus(safe, map_("log", reduce_("sum", map_("exp", minus(a, safe)), axes)))
    return _kept(total, a, axes, keepdim)


@lowers("softmax", "_softmax", "special_softmax")
def softmax(a: Value, dim: int, *_rest: Any, **_kwargs: Any) -> Value:
    raised = map_("exp", minus(a, reduce_("max", a, [dim])))
    return over(raised, reduce_("sum", raised, [dim]))


@lowers("log_softmax", "_log_softmax", "special_log_softmax")
def log_softmax(a: Value, dim: int, *_rest: Any, **_kwargs: Any) -> Value:
    shifted = minus(a, reduce_("max", a, [dim]))
    return minus(shifted, map_("log", reduce_("sum", map_("exp", shifted), [dim])))


def normalized(a: Value, axes: Sequence[int], eps: float) -> Value:
    """(a - mean) / sqrt(variance + eps), the variance around the mean."""
    centred = minus(a, mean_over(a, axes))
    return mul(centred, map_("rsqrt", plus(mean_over(square(centred), axes), eps)))


def affine(a: Value, weight: Value | None, bias: Value | None) -> Value:
    scaled = a if weight is None else mul(a, weight)
    return scaled if bias is None else plus(scaled, bias)


@lowers("layer_norm")
def _layer_norm(
    a: Value, shape: Sequence[int], weight: Value | None = None, bias: Value | None = None, eps: float = 1e-5, *_: Any
) -> Value:
    axes = range(len(a.shape) - len(shape), len(a.shape))
    return affine(normalized(a, axes, eps), weight, bias)


@lowers("native_layer_norm")
def _native_layer_norm(a: Value, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Pick:
    return Pick((_layer_norm(a, shape, weight, bias, eps), None, None), "the statistics of aten.native_layer_norm")


@lowers("rms_norm", "_fused_rms_norm")
def _rms_norm(a: Value, shape: Sequence[int], weight: Value | None = None, eps: float | None = None) -> Value:
    axes = range(len(a.shape) - len(shape), len(a.shape))
    eps = 1.1920928955078125e-07 if eps is None else eps
    return affine(mul(a, map_("rsqrt", plus(mean_over(square(a), axes), eps))), weight, None)


def _channels(parameter: Value | None, rank: int) -> Value | None:
    """[C] beside [N, C, ...]."""
    return None if parameter is None else reshape(parameter, (parameter.shape[0], *(1,) * (rank - 2)))


@lowers("group_norm")
def _group_norm(
    a: Value, groups: int, weight: Value | None = None, bias: Value | None = None, eps: float = 1e-5, *_: Any
) -> Value:
    n, c, *rest = a.shape
    grouped = reshape(a, (n, groups, c // groups, *rest))
    normal = reshape(normalized(grouped, range(2, len(grouped.shape)), eps), a.shape)
    return affine(normal, _channels(weight, len(a.shape)), _channels(bias, len(a.shape)))


@lowers("instance_norm")
def _instance_norm(
    a: Value, weight: Any, bias: Any, mean: Any, variance: Any, use_input_stats: bool, _m: float, eps: float, *_: Any
) -> Value:
    rank = len(a.shape)
    if not use_input_stats:
        return _batch_norm(a, weight, bias, mean, variance, False, _m, eps)
    return affine(normalized(a, range(2, rank), eps), _channels(weight, rank), _channels(bias, rank))


@lowers("batch_norm")
def _batch_norm(
    a: Value, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, _m: float, eps: float, *_: Any
) -> Value:
    rank = len(a.shape)
    if training:
        axes = [axis for axis in range(rank) if axis != 1]
        return affine(normalized(a, axes, eps), _channels(weight, rank), _channels(bias, rank))
    scale = map_("rsqrt", plus(variance, eps))
    scale = scale if weight is None else mul(scale, weight)
    centred = minus(a, _channels(mean, rank) or mean)
    return affine(centred, _channels(scale, rank), _channels(bias, rank))


@lowers("_native_batch_norm_legit_no_training")
def _no_training(a: Value, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float) -> Pick:
    normal = _batch_norm(a, weight, bias, mean, variance, False, momentum, eps)
    return Pick((normal, None, None), "the statistics of aten.batch_norm")


@lowers("cosine_similarity")
def _cosine_similarity(a: Value, b: Value, dim: int = 1, eps: float = 1e-8) -> Value:
    rank = max(len(a.shape), len(b.shape))
    axes = [dim % rank]
    sizes = [map_("max", norm_over(x, 2.0, axes), const(eps)) for x in (a, b)]
    product = mul(over(a, sizes[0]), over(b, sizes[1]))
    return _kept(reduce_("sum", product, axes), product, axes, False)


@lowers("pairwise_distance")
def _pairwise_distance(a: Value, b: Value, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Value:
    difference = plus(minus(a, b), eps)
    axes = [len(difference.shape) - 1]
    return _kept(norm_over(difference, p, axes), difference, axes, keepdim)

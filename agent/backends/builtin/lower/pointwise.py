"""Pointwise operators: each becomes a small expression of the primitives that every code generator knows."""

import math
from typing import Any

from agent.backends.builtin.ir import Const, Source, Unsupported, Value, as_bool, as_float, const, map_
from agent.backends.builtin.lower.registry import LOWERINGS, Dtype, lowers

Operand = Value | float | int | bool
DIRECT = {
    "neg": "neg", "abs": "abs", "exp": "exp", "log": "log", "log1p": "log1p", "expm1": "expm1", "sqrt": "sqrt",
    "special_expm1": "expm1", "special_log1p": "log1p", "special_erf": "erf", "special_expit": "sigmoid",
    "rsqrt": "rsqrt", "reciprocal": "recip", "sin": "sin", "cos": "cos", "tanh": "tanh", "sigmoid": "sigmoid",
    "erf": "erf", "floor": "floor", "ceil": "ceil", "round": "round", "trunc": "trunc", "isnan": "isnan",
    "logical_not": "not", "bitwise_not": "not", "relu": "relu",
    "maximum": "max", "minimum": "min", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne",
    "logical_and": "and", "logical_or": "or", "logical_xor": "xor",
}  # fmt: skip


def value(operand: Operand) -> Value:
    """Numbers become constants."""
    return operand if isinstance(operand, Value) else const(float(operand))


def _direct(primitive: str) -> Any:
    return lambda *args: map_(primitive, *map(value, args))


for _name, _primitive in DIRECT.items():
    LOWERINGS[_name] = _direct(_primitive)


def mul(a: Operand, b: Operand) -> Value:
    return map_("mul", value(a), value(b))


def plus(a: Operand, b: Operand) -> Value:
    return map_("add", value(a), value(b))


def minus(a: Operand, b: Operand) -> Value:
    return map_("sub", value(a), value(b))


def over(a: Operand, b: Operand) -> Value:
    """A constant divisor becomes a factor where that is exact or nearly so."""
    a, b = value(a), value(b)
    if isinstance(b, Const) and b.value not in (0.0, math.inf, -math.inf) and abs(1 / b.value) < 1e30:
        return mul(a, 1.0 / b.value)
    if isinstance(a, Const) and a.value == 1.0 and not a.shape:
        return map_("recip", b)
    return map_("div", a, b)


def where(condition: Value, a: Operand, b: Operand) -> Value:
    return map_("where", condition, value(a), value(b))


def less(a: Operand, b: Operand) -> Value:
    return map_("lt", value(a), value(b))


@lowers("add")
def _add(a: Operand, b: Operand, alpha: float = 1) -> Value:
    return plus(a, b if alpha == 1 else mul(b, alpha))


@lowers("sub", "subtract")
def _sub(a: Operand, b: Operand, alpha: float = 1) -> Value:
    return minus(a, b if alpha == 1 else mul(b, alpha))


@lowers("rsub")
def _rsub(a: Operand, b: Operand, alpha: float = 1) -> Value:
    return _sub(b, a, alpha)


@lowers("mul", "multiply")
def _mul(a: Operand, b: Operand) -> Value:
    return mul(a, b)


@lowers("div", "divide", "true_divide")
def _div(a: Operand, b: Operand, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return over(a, b)
    exact = map_("div", value(a), value(b))
    return map_("floor" if rounding_mode == "floor" else "trunc", exact)


@lowers("square")
def square(a: Value) -> Value:
    return mul(a, a)


@lowers("pow", "float_power")
def _pow(base: Operand, exponent: Operand) -> Value:
    if isinstance(exponent, Const):
        exponent = exponent.value
    if isinstance(exponent, Value):
        raise Unsupported("aten.pow with a tensor as exponent")
    if not isinstance(base, Value):
        raise Unsupported("aten.pow of a number")
    return power(base, float(exponent))


def power(base: Value, exponent: float) -> Value:
    """Whole and half powers up to 16 by multiplication and roots; others are refused rather than inaccurate."""
    if exponent < 0:
        return map_("rsqrt", base) if exponent == -0.5 else map_("recip", power(base, -exponent))
    whole, half = divmod(exponent, 1.0)
    if half not in (0.0, 0.5) or whole > 16:
        raise Unsupported(f"aten.pow with exponent {exponent:g}")
    if whole == 0:
        return map_("sqrt", base) if half else plus(mul(base, 0.0), 1.0)
    result = _whole_power(base, int(whole))
    return mul(result, map_("sqrt", base)) if half else result


def _whole_power(base: Value, exponent: int) -> Value:
    if exponent == 1:
        return base
    root = _whole_power(base, exponent // 2)
    twice = mul(root, root)
    return mul(twice, base) if exponent % 2 else twice


@lowers("exp2")
def _exp2(a: Value) -> Value:
    return map_("exp", mul(a, math.log(2)))


@lowers("log2")
def _log2(a: Value) -> Value:
    return mul(map_("log", a), 1 / math.log(2))


@lowers("log10")
def _log10(a: Value) -> Value:
    return mul(map_("log", a), 1 / math.log(10))


@lowers("sinh")
def _sinh(a: Value) -> Value:
    e = map_("expm1", a)
    return mul(plus(e, over(e, plus(e, 1.0))), 0.5)


@lowers("cosh")
def _cosh(a: Value) -> Value:
    e = map_("exp", a)
    return mul(plus(e, map_("recip", e)), 0.5)


@lowers("erfc", "special_erfc")
def _erfc(a: Value) -> Value:
    return minus(1.0, map_("erf", a))


@lowers("sign", "sgn")
def _sign(a: Value) -> Value:
    return minus(where(less(0.0, a), 1.0, 0.0), where(less(a, 0.0), 1.0, 0.0))


@lowers("frac")
def _frac(a: Value) -> Value:
    return minus(a, map_("trunc", a))


@lowers("remainder")
def _remainder(a: Operand, b: Operand) -> Value:
    return minus(a, mul(map_("floor", map_("div", value(a), value(b))), b))


@lowers("where")
def _where(condition: Value, *branches: Operand) -> Value:
    if len(branches) != 2:
        raise Unsupported("aten.where with a condition only")
    return where(condition, *branches)


@lowers("masked_fill")
def _masked_fill(a: Value, mask: Value, fill: Operand) -> Value:
    return where(mask, fill, a)


@lowers("bitwise_and", "__and__")
def _and(a: Operand, b: Operand) -> Value:
    return _logical("and", a, b)


@lowers("bitwise_or", "__or__")
def _or(a: Operand, b: Operand) -> Value:
    return _logical("or", a, b)


@lowers("bitwise_xor", "__xor__")
def _xor(a: Operand, b: Operand) -> Value:
    return _logical("xor", a, b)


def _logical(op: str, a: Operand, b: Operand) -> Value:
    if any(isinstance(x, Value) and x.type != "bool" for x in (a, b)):
        raise Unsupported(f"aten.bitwise_{op} of integers")
    return map_(op, value(a), value(b))


def clamp(a: Value, low: Operand | None, high: Operand | None) -> Value:
    if low is not None:
        a = map_("max", a, value(low))
    return a if high is None else map_("min", a, value(high))


@lowers("clamp", "clip")
def _clamp(a: Value, min: Operand | None = None, max: Operand | None = None) -> Value:
    return clamp(a, min, max)


@lowers("hardtanh")
def _hardtanh(a: Value, min_val: float = -1.0, max_val: float = 1.0) -> Value:
    return clamp(a, min_val, max_val)


@lowers("clamp_min")
def _clamp_min(a: Value, min: Operand) -> Value:
    return clamp(a, min, None)


@lowers("clamp_max")
def _clamp_max(a: Value, max: Operand) -> Value:
    return clamp(a, None, max)


@lowers("relu6")
def _relu6(a: Value) -> Value:
    return clamp(a, 0.0, 6.0)


@lowers("lerp")
def _lerp(a: Value, b: Value, weight: Operand) -> Value:
    return plus(a, mul(weight, minus(b, a)))


@lowers("addcmul")
def _addcmul(a: Value, b: Value, c: Value, value: float = 1) -> Value:
    return plus(a, mul(mul(b, c), value))


@lowers("addcdiv")
def _addcdiv(a: Value, b: Value, c: Value, value: float = 1) -> Value:
    return plus(a, mul(over(b, c), value))


@lowers("hypot")
def _hypot(a: Value, b: Value) -> Value:
    return map_("sqrt", plus(mul(a, a), mul(b, b)))


@lowers("to", "_to_copy", "type_as")
def _to(a: Value, *args: Any, **kwargs: Any) -> Value:
    wanted = next((x.name for x in (*args, *kwargs.values()) if isinstance(x, Dtype)), None)
    if wanted is None:
        return a
    return cast(a, wanted)


def cast(a: Value, dtype: str) -> Value:
    """Raises Unsupported for types that there are no kernels for."""
    if dtype == "float32":
        return as_float(a)
    if dtype in ("float16", "bfloat16"):
        return as_float(a) if isinstance(a, Source) and a.dtype == dtype else map_(f"to_{dtype}", a)
    if dtype == "bool":
        return as_bool(a)
    if dtype in ("int64", "int32") and a.type != "f32":
        return a
    raise Unsupported(f"a conversion to {dtype}")


@lowers("clone", "contiguous", "detach", "alias", "lift_fresh_copy", "dropout", "feature_dropout", "alpha_dropout")
def _same(a: Value, *_args: Any, **_kwargs: Any) -> Value:
    """Evaluation mode: dropout does nothing."""
    return a


@lowers("zeros_like")
def _zeros_like(a: Value, **_kwargs: Any) -> Value:
    return Const(a.shape, "f32", 0.0)


@lowers("ones_like")
def _ones_like(a: Value, **_kwargs: Any) -> Value:
    return Const(a.shape, "f32", 1.0)


@lowers("full_like")
def _full_like(a: Value, fill: float, **_kwargs: Any) -> Value:
    return Const(a.shape, "f32", float(fill))


@lowers("scalar_tensor", "full")
def _full(first: Any, fill: float | None = None, **_kwargs: Any) -> Value:
    return const(first) if fill is None else Const(tuple(first), "f32", float(fill))


@lowers("zeros")
def _zeros(shape: list[int], **_kwargs: Any) -> Value:
    return Const(tuple(shape), "f32", 0.0)


@lowers("ones")
def _ones(shape: list[int], **_kwargs: Any) -> Value:
    return Const(tuple(shape), "f32", 1.0)

"""Activation functions as expressions of the primitives."""

import math
from typing import Any

from agent.backends.builtin.ir import Unsupported, Value, map_, reshape
from agent.backends.builtin.lower.pointwise import clamp, less, minus, mul, over, plus, where
from agent.backends.builtin.lower.registry import lowers


@lowers("gelu")
def _gelu(a: Value, approximate: str = "none") -> Value:
    if approximate == "tanh":
        inner = mul(mul(a, plus(mul(mul(a, a), 0.044715), 1.0)), 2 * math.sqrt(2 / math.pi))
        return mul(a, map_("sigmoid", inner))
    half = mul(a, 0.5)
    return plus(half, mul(half, map_("erf", mul(a, math.sqrt(0.5)))))


@lowers("silu")
def _silu(a: Value) -> Value:
    return mul(a, map_("sigmoid", a))


@lowers("softplus")
def softplus(a: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    scaled = mul(a, beta)
    smooth = plus(map_("relu", scaled), map_("log1p", map_("exp", map_("neg", map_("abs", scaled)))))
    return where(less(threshold, scaled), a, mul(smooth, 1.0 / beta))


@lowers("log_sigmoid", "logsigmoid")
def log_sigmoid(a: Value) -> Value:
    tail = map_("log1p", map_("exp", map_("neg", map_("abs", a))))
    return minus(map_("min", a, mul(a, 0.0)), tail)


@lowers("mish")
def _mish(a: Value) -> Value:
    # tanh(log(1 + e)) = (e^2 + 2 e) / (e^2 + 2 e + 2) with e = exp(a): one exponential, nothing cancels.
    e = map_("exp", clamp(a, None, 20.0))
    product = mul(e, plus(e, 2.0))
    return mul(a, over(product, plus(product, 2.0)))


@lowers("elu")
def elu(a: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    below = mul(map_("expm1", mul(a, input_scale)), alpha)
    return mul(where(less(0.0, a), a, below), scale)


@lowers("selu")
def _selu(a: Value) -> Value:
    return elu(a, 1.6732632423543772, 1.0507009873554805)


@lowers("celu")
def _celu(a: Value, alpha: float = 1.0) -> Value:
    return elu(a, alpha, 1.0, 1.0 / alpha)


@lowers("leaky_relu")
def _leaky_relu(a: Value, slope: float = 0.01) -> Value:
    return where(less(0.0, a), a, mul(a, slope))


@lowers("prelu", "_prelu_kernel")
def _prelu(a: Value, weight: Value) -> Value:
    if len(a.shape) > 1 and len(weight.shape) == 1:
        weight = reshape(weight, (weight.shape[0], *(1,) * (len(a.shape) - 2)))
    return where(less(0.0, a), a, mul(a, weight))


@lowers("hardsigmoid")
def _hardsigmoid(a: Value) -> Value:
    return clamp(plus(mul(a, 1 / 6), 0.5), 0.0, 1.0)


@lowers("hardswish")
def _hardswish(a: Value) -> Value:
    return mul(a, mul(clamp(plus(a, 3.0), 0.0, 6.0), 1 / 6))


@lowers("hardshrink")
def _hardshrink(a: Value, lambd: float = 0.5) -> Value:
    return where(less(lambd, map_("abs", a)), a, 0.0)


@lowers("softshrink")
def _softshrink(a: Value, lambd: float = 0.5) -> Value:
    return minus(a, clamp(a, -lambd, lambd))


@lowers("softsign")
def _softsign(a: Value) -> Value:
    return over(a, plus(map_("abs", a), 1.0))


@lowers("tanhshrink")
def _tanhshrink(_a: Value) -> Value:
    # x - tanh(x) cancels near zero; eager has the same error, but not the same as another tanh.
    raise Unsupported("aten.tanhshrink")


@lowers("threshold")
def _threshold(a: Value, threshold: float, value: float) -> Value:
    return where(less(threshold, a), a, value)


@lowers("glu")
def _glu(a: Value, dim: int = -1) -> Value:
    from agent.backends.builtin.ir import slice_

    size = a.shape[dim] // 2
    gate = slice_(a, dim, size, 1, size)
    return mul(slice_(a, dim, 0, 1, size), map_("sigmoid", gate))


@lowers("rrelu")
def _rrelu(a: Value, lower: float = 0.125, upper: float = 1 / 3, *_rest: Any) -> Value:
    return where(less(0.0, a), a, mul(a, (lower + upper) / 2))

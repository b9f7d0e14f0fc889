"""Matrix products."""

from agent.backends.builtin.ir import Unsupported, Value, map_, product, reshape
from agent.backends.builtin.lower.pointwise import mul, plus
from agent.backends.builtin.lower.registry import lowers
from agent.backends.builtin.lower.views import transpose


@lowers("linear")
def _linear(a: Value, weight: Value, bias: Value | None = None) -> Value:
    if len(weight.shape) != 2:
        raise Unsupported("aten.linear with a vector of weights")
    rows = reshape(a, (-1 if not a.shape else _rows(a), a.shape[-1]))
    out = reshape(product(rows, transpose(weight, 0, 1)), (*a.shape[:-1], weight.shape[0]))
    return out if bias is None else plus(out, bias)


def _rows(a: Value) -> int:
    rows = 1
    for size in a.shape[:-1]:
        rows *= size
    return rows


@lowers("matmul", "mm", "bmm", "mv", "dot")
def matmul(a: Value, b: Value) -> Value:
    """Vectors get an axis of size 1 and lose it again."""
    left = reshape(a, (1, *a.shape)) if len(a.shape) == 1 else a
    right = reshape(b, (*b.shape, 1)) if len(b.shape) == 1 else b
    out = product(left, right)
    shape = out.shape
    if len(b.shape) == 1:
        shape = shape[:-1]
    if len(a.shape) == 1:
        shape = (*shape[:-2], *shape[-1:]) if len(b.shape) > 1 else shape[:-1]
    return reshape(out, shape)


@lowers("addmm", "baddbmm")
def _addmm(bias: Value, a: Value, b: Value, beta: float = 1, alpha: float = 1) -> Value:
    out = mul(matmul(a, b), alpha) if alpha != 1 else matmul(a, b)
    return plus(out, mul(bias, beta) if beta != 1 else bias)


@lowers("addmv")
def _addmv(bias: Value, a: Value, b: Value) -> Value:
    return map_("add", bias, matmul(a, b))

"""Loss functions. Reduction is torch's number: 0 none, 1 mean, 2 sum."""

from agent.backends.builtin.ir import Unsupported, Value, const, map_, numel, reduce_, reshape, take, take_along
from agent.backends.builtin.lower.pointwise import clamp, less, minus, mul, over, plus, square, where
from agent.backends.builtin.lower.reductions import log_softmax, norm_over
from agent.backends.builtin.lower.registry import lowers


def reduced(loss: Value, reduction: int) -> Value:
    if reduction == 0:
        return loss
    total = reduce_("sum", loss, range(len(loss.shape)))
    scalar = reshape(total, ())
    return mul(scalar, 1.0 / max(numel(loss.shape), 1)) if reduction == 1 else scalar


@lowers("mse_loss")
def _mse(a: Value, b: Value, reduction: int = 1) -> Value:
    return reduced(square(minus(a, b)), reduction)


@lowers("l1_loss")
def _l1(a: Value, b: Value, reduction: int = 1) -> Value:
    return reduced(map_("abs", minus(a, b)), reduction)


@lowers("smooth_l1_loss")
def _smooth_l1(a: Value, b: Value, reduction: int = 1, beta: float = 1.0) -> Value:
    if beta == 0:
        return _l1(a, b, reduction)
    size = map_("abs", minus(a, b))
    loss = where(less(size, beta), mul(square(size), 0.5 / beta), minus(size, 0.5 * beta))
    return reduced(loss, reduction)


@lowers("huber_loss")
def _huber(a: Value, b: Value, reduction: int = 1, delta: float = 1.0) -> Value:
    size = map_("abs", minus(a, b))
    loss = where(map_("le", size, const(delta)), mul(square(size), 0.5), mul(minus(size, 0.5 * delta), delta))
    return reduced(loss, reduction)


@lowers("binary_cross_entropy")
def _bce(a: Value, target: Value, weight: Value | None = None, reduction: int = 1) -> Value:
    yes = clamp(map_("log", a), -100.0, None)
    no = clamp(map_("log", minus(1.0, a)), -100.0, None)
    loss = minus(mul(minus(target, 1.0), no), mul(target, yes))
    return reduced(loss if weight is None else mul(loss, weight), reduction)


@lowers("binary_cross_entropy_with_logits")
def _bce_with_logits(
    a: Value, target: Value, weight: Value | None = None, pos_weight: Value | None = None, reduction: int = 1
) -> Value:
    tail = map_("log1p", map_("exp", map_("neg", map_("abs", a))))
    if pos_weight is None:
        loss = plus(minus(map_("relu", a), mul(a, target)), tail)
    else:
        factor = plus(mul(minus(pos_weight, 1.0), target), 1.0)
        below = plus(tail, map_("relu", map_("neg", a)))
        loss = plus(mul(minus(1.0, target), a), mul(factor, below))
    return reduced(loss if weight is None else mul(loss, weight), reduction)


@lowers("kl_div")
def _kl_div(a: Value, target: Value, reduction: int = 1, log_target: bool = False) -> Value:
    if log_target:
        loss = mul(map_("exp", target), minus(target, a))
    else:
        # target * log(target) is 0 at 0, and so is the whole term.
        safe = where(less(0.0, target), target, 1.0)
        loss = minus(mul(target, map_("log", safe)), mul(target, a))
    return reduced(loss, reduction)


@lowers("soft_margin_loss")
def _soft_margin(a: Value, target: Value, reduction: int = 1) -> Value:
    z = map_("neg", mul(a, target))
    loss = plus(map_("relu", z), map_("log1p", map_("exp", map_("neg", map_("abs", z)))))
    return reduced(loss, reduction)


@lowers("hinge_embedding_loss")
def _hinge_embedding(a: Value, target: Value, margin: float = 1.0, reduction: int = 1) -> Value:
    near = where(map_("ne", target, const(-1.0)), a, 0.0)
    far = where(map_("ne", target, const(1.0)), clamp(minus(margin, a), 0.0, None), 0.0)
    return reduced(plus(near, far), reduction)


@lowers("margin_ranking_loss")
def _margin_ranking(a: Value, b: Value, target: Value, margin: float = 0.0, reduction: int = 1) -> Value:
    return reduced(clamp(minus(margin, mul(target, minus(a, b))), 0.0, None), reduction)


@lowers("triplet_margin_loss")
def _triplet(
    anchor: Value, positive: Value, negative: Value, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6,
    swap: bool = False, reduction: int = 1,
) -> Value:  # fmt: skip
    if swap:
        raise Unsupported("aten.triplet_margin_loss with swap")
    axes = [len(anchor.shape) - 1]
    near, far = (norm_over(plus(minus(anchor, x), eps), p, axes) for x in (positive, negative))
    loss = clamp(plus(minus(near, far), margin), 0.0, None)
    return reduced(reshape(loss, loss.shape[:-1]), reduction)


@lowers("cosine_embedding_loss")
def _cosine_embedding(a: Value, b: Value, target: Value, margin: float = 0.0, reduction: int = 1) -> Value:
    axes = [len(a.shape) - 1]
    dot = reduce_("sum", mul(a, b), axes)
    first, second = (plus(reduce_("sum", square(x), axes), 1e-12) for x in (a, b))
    cosine = reshape(over(dot, map_("sqrt", mul(first, second))), a.shape[:-1])
    same = where(map_("eq", target, const(1.0)), minus(1.0, cosine), 0.0)
    other = where(map_("eq", target, const(-1.0)), clamp(minus(cosine, margin), 0.0, None), 0.0)
    return reduced(plus(same, other), reduction)


@lowers("poisson_nll_loss")
def _poisson(a: Value, target: Value, log_input: bool, full: bool, eps: float, reduction: int) -> Value:
    if full:
        raise Unsupported("aten.poisson_nll_loss with the Stirling term")
    rate, logarithm = (map_("exp", a), a) if log_input else (a, map_("log", plus(a, eps)))
    return reduced(minus(rate, mul(target, logarithm)), reduction)


@lowers("nll_loss", "nll_loss_nd", "nll_loss2d")
def nll_loss(
    logp: Value, target: Value, weight: Value | None = None, reduction: int = 1, ignore_index: int = -100
) -> Value:
    """Classes on axis 1 ([C] or [N, C, ...]); the mean is over the weights of the classes that count."""
    axis = 0 if len(logp.shape) == 1 else 1
    counts = map_("ne", target, const(float(ignore_index)))
    at = (*target.shape[:axis], 1, *target.shape[axis:])
    picked = reshape(take_along(logp, axis, reshape(target, at)), target.shape)
    loss = map_("neg", picked)
    factor: Value | None = None
    if weight is not None:
        factor = take(weight, 0, target)
        loss = mul(loss, factor)
    loss = where(counts, loss, 0.0)
    if reduction != 1:
        return reduced(loss, reduction)
    shares = where(counts, const(1.0) if factor is None else factor, 0.0)
    return over(reduced(loss, 2), reduced(shares, 2))


@lowers("cross_entropy_loss")
def _cross_entropy(
    a: Value, target: Value, weight: Value | None = None, reduction: int = 1, ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Value:  # fmt: skip
    axis = 0 if len(a.shape) == 1 else 1
    logp = log_softmax(a, axis)
    classes = a.shape[axis]
    if target.type == "f32":
        if weight is not None:
            raise Unsupported("aten.cross_entropy_loss of probabilities with class weights")
        soft = plus(mul(target, 1.0 - label_smoothing), label_smoothing / classes) if label_smoothing else target
        loss = map_("neg", reduce_("sum", mul(logp, soft), [axis]))
        total = reduced(loss, 2 if reduction else 0)
        items = numel(a.shape) // classes
        return mul(total, 1.0 / items) if reduction == 1 else _dropped(total, a, axis, reduction)
    plain = nll_loss(logp, target, weight, reduction, ignore_index)
    if not label_smoothing:
        return plain
    if weight is not None:
        raise Unsupported("aten.cross_entropy_loss with label smoothing and class weights")
    counts = map_("ne", target, const(float(ignore_index)))
    spread = map_("neg", reduce_("sum", logp, [axis]))
    spread = where(counts, reshape(spread, target.shape), 0.0)
    if reduction == 1:
        smooth = over(reduced(spread, 2), reduced(where(counts, 1.0, 0.0), 2))
    else:
        smooth = reduced(spread, reduction)
    return plus(mul(plain, 1.0 - label_smoothing), mul(smooth, label_smoothing / classes))


def _dropped(loss: Value, a: Value, axis: int, reduction: int) -> Value:
    return loss if reduction else reshape(loss, (*a.shape[:axis], *a.shape[axis + 1 :]))

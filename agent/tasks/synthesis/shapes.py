"""Which shapes an operator takes, which shape it gives, and how many floating-point operations that is.

The rules for the output are those of tools/crawling/shapes.py, where they were tried on the installed torch; a test
holds the two together.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

from agent.tasks.synthesis.operators import Operator

Shape = tuple[int, ...]
Picks = Mapping[str, Any]
_PLACES: Final = {"last": -1, "channels": 1}
_GATES: Final = {"gru": 6, "lstm": 8}


def sizes(operator: Operator, shape: Shape) -> dict[str, int]:
    """The sizes that the constructor takes from the input's shape."""
    return {name: shape[_PLACES[place]] for name, place in operator.sizes.items()}


def fits(operator: Operator, shape: Shape, picks: Picks) -> bool:
    """The operator can be used on this shape, and something is left of it."""
    if len(shape) not in operator.ranks:
        return False
    channels, last, space = shape[1], shape[-1], shape[2:]
    kind = operator.rule["kind"]
    if "heads" in picks and (last % picks["heads"] or last // picks["heads"] < 8):
        return False
    if "groups" in picks and (channels % picks["groups"] or channels <= picks["groups"]):
        return False
    if kind in ("conv", "pool") and any(size + 2 * picks["padding"] < picks["kernel"] + 1 for size in space):
        return False
    if kind in ("conv", "conv_transpose", "pool") and picks.get("padding", 0) * 2 > picks["kernel"]:
        return False
    if kind == "pad" and any(size <= picks["pad"] for size in space):
        return False
    if kind == "adaptive" and any(size <= picks["size"] for size in space):
        return False
    return _divides(kind, shape, picks) and min(after(operator, shape, picks)) >= 1


def _divides(kind: str, shape: Shape, picks: Picks) -> bool:
    if kind == "pixel_shuffle":
        return bool(shape[1] % picks["factor"] ** 2 == 0)
    if kind == "pixel_unshuffle":
        return all(size % picks["factor"] == 0 for size in shape[2:])
    if kind == "halve":
        return shape[picks["dim"]] % 2 == 0
    if kind == "reduce":
        return len(shape) > 2 and shape[picks["dim"]] > 3
    return True


def after(operator: Operator, shape: Shape, picks: Picks) -> Shape:
    """The output's shape."""
    rule = operator.rule
    kind, space = rule["kind"], shape[2:]
    if kind == "same":
        return shape
    if kind == "last":
        return (*shape[:-1], picks[rule["to"]])
    if kind == "gram":
        return (shape[0], shape[1], shape[1])
    if kind == "conv":
        out = shape[1] if rule.get("depthwise") else picks["out"]
        return (shape[0], out, *(_strided(size, picks) for size in space))
    if kind == "conv_transpose":
        grown = ((size - 1) * picks["stride"] - 2 * picks["padding"] + picks["kernel"] for size in space)
        return (shape[0], picks["out"], *grown)
    if kind == "pool":
        return (*shape[:2], *(_strided(size, picks) for size in space))
    if kind == "adaptive":
        return (*shape[:2], *([picks["size"]] * rule["dims"]))
    if kind == "pad":
        return (*shape[:2], *(size + 2 * picks["pad"] for size in space))
    if kind == "upsample":
        return (*shape[:2], *(size * picks["factor"] for size in space))
    return _moved(kind, shape, picks)


def _moved(kind: str, shape: Shape, picks: Picks) -> Shape:
    factor = picks.get("factor", 1)
    if kind == "pixel_shuffle":
        return (shape[0], shape[1] // factor**2, *(size * factor for size in shape[2:]))
    if kind == "pixel_unshuffle":
        return (shape[0], shape[1] * factor**2, *(size // factor for size in shape[2:]))
    if kind == "flatten":
        return (shape[0], math.prod(shape[1:]))
    if kind == "transpose":
        return (shape[0], shape[2], shape[1], *shape[3:])
    at = picks["dim"] % len(shape)
    if kind == "reduce":
        return shape[:at] + ((1,) if picks["keepdim"] else ()) + shape[at + 1 :]
    resized = {"halve": shape[at] // 2, "cat": shape[at] * 2}[kind]
    return (*shape[:at], resized, *shape[at + 1 :])


def flops(operator: Operator, shape: Shape, picks: Picks) -> float:
    """Multiplications and additions of what is a matrix product inside; zero for everything else."""
    made, kind = after(operator, shape, picks), operator.rule["kind"]
    rows, last = math.prod(shape[:-1]), shape[-1]
    if operator.family == "convolution":
        touched = math.prod(shape) if kind == "conv_transpose" else math.prod(made)
        channels = 1 if operator.rule.get("depthwise") else picks["out"] if kind == "conv_transpose" else shape[1]
        return 2.0 * touched * channels * float(picks["kernel"]) ** len(shape[2:])
    if operator.family == "recurrence":
        return float(_GATES[operator.base] * rows * picks["out"] * (last + picks["out"]))
    if operator.family == "matrix product":
        factor = last if operator.base == "bilinear" else 1
        return 2.0 * rows * last * (shape[1] if kind == "gram" else picks["out"]) * factor
    if "heads" in picks:
        return 8.0 * rows * last * last + 4.0 * rows * shape[1] * last
    if operator.family == "attention":
        return 4.0 * rows * shape[-2] * last
    return 6.0 * rows * last * picks[next(iter(picks))] if operator.weights and "wide" in picks else 0.0


def _strided(size: int, picks: Picks) -> int:
    return int((size + 2 * picks["padding"] - picks["kernel"]) // picks.get("stride", 1) + 1)

"""The rules that foretell an operator's output shape; agent/tasks/synthesis holds the same rules for composing."""

import itertools
from collections.abc import Iterator
from typing import Any, Final

FEATURES: Final = (24, 16)  # what stands for a picked number of features while an operator is tried
Shape = tuple[int, ...]


def sizes(entry: dict[str, Any], shape: Shape) -> dict[str, int]:
    where = {"last": -1, "channels": 1}
    return {name: shape[where[place]] for name, place in entry.get("sizes", {}).items()}


def all_picks(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    picks = entry.get("picks", {})
    values = [FEATURES if found == "features" else found for found in picks.values()]
    for chosen in itertools.product(*values):
        yield dict(zip(picks, chosen, strict=True))


def after(entry: dict[str, Any], shape: Shape, picks: dict[str, Any]) -> Shape:
    rule: dict[str, Any] = entry["rule"]
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


def _moved(kind: str, shape: Shape, picks: dict[str, Any]) -> Shape:
    factor = picks.get("factor", 1)
    if kind == "pixel_shuffle":
        return (shape[0], shape[1] // factor**2, *(size * factor for size in shape[2:]))
    if kind == "pixel_unshuffle":
        return (shape[0], shape[1] * factor**2, *(size // factor for size in shape[2:]))
    if kind == "flatten":
        total = 1
        for size in shape[1:]:
            total *= size
        return (shape[0], total)
    if kind == "transpose":
        return (shape[0], shape[2], shape[1], *shape[3:])
    at = picks["dim"] % len(shape)
    if kind == "reduce":
        return shape[:at] + ((1,) if picks["keepdim"] else ()) + shape[at + 1 :]
    resized = {"halve": shape[at] // 2, "cat": shape[at] * 2}[kind]
    return (*shape[:at], resized, *shape[at + 1 :])


def _strided(size: int, picks: dict[str, Any]) -> int:
    return int((size + 2 * picks["padding"] - picks["kernel"]) // picks.get("stride", 1) + 1)

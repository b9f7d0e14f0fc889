"""Nested values as data: tuples, lists, dicts, None, numbers, strings, dtypes and tensors as a JSON spec plus leaf
tensors.

A spec is what crosses between processes; tensors appear in it as layouts (dtype, shape, stride, bytes of storage they
span).
"""

import math
from collections.abc import Iterator
from typing import Any, Final

import torch

Spec = dict[str, Any]
MAX_DEPTH: Final = 32
DTYPES: Final = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex128, torch.complex64,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    )
}  # fmt: skip


class Unsupported(Exception):
    """A value that cannot cross between processes as data."""


def flatten(value: Any) -> tuple[Spec, list[torch.Tensor]]:
    """Spec and leaf tensors, in the order in which `tensors_of` names them."""
    leaves: list[torch.Tensor] = []
    return _flatten(value, leaves, 0), leaves


def _flatten(value: Any, leaves: list[torch.Tensor], depth: int) -> Spec:
    if depth > MAX_DEPTH:
        raise Unsupported("nested too deeply")
    if isinstance(value, torch.Tensor):
        leaves.append(value)
        return {"k": "tensor", **layout_of(value)}
    if isinstance(value, (tuple, list)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {"k": kind, "items": [_flatten(item, leaves, depth + 1) for item in value]}
    if isinstance(value, dict):
        if not all(isinstance(key, (str, int)) for key in value):
            raise Unsupported("a dict whose keys are not strings or integers")
        pairs = [[key, _flatten(item, leaves, depth + 1)] for key, item in value.items()]
        return {"k": "dict", "items": pairs}
    return _scalar(value)


def _scalar(value: Any) -> Spec:
    if value is None or isinstance(value, (bool, str)):
        return {"k": "plain", "v": value}
    if isinstance(value, int):
        return {"k": "int", "v": str(value)}
    if isinstance(value, float):
        return {"k": "float", "v": value.hex()}
    if isinstance(value, complex):
        return {"k": "complex", "v": [value.real.hex(), value.imag.hex()]}
    if isinstance(value, torch.dtype):
        return {"k": "dtype", "v": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"k": "device", "v": str(value)}
    raise Unsupported(f"a value of type {type(value).__name__}")


def layout_of(tensor: torch.Tensor) -> Spec:
    """dtype, shape, stride and the bytes between first and last element."""
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise Unsupported(f"a tensor of dtype {name}")
    if tensor.layout is not torch.strided:
        raise Unsupported("a sparse tensor")
    shape, stride = list(tensor.shape), list(tensor.stride())
    return {"dtype": name, "shape": shape, "stride": stride, "bytes": span_bytes(shape, stride, tensor.element_size())}


def span_bytes(shape: list[int], stride: list[int], item: int) -> int:
    if not math.prod(shape):
        return 0
    return (sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) + 1) * item


def unflatten(spec: Spec, leaves: Iterator[torch.Tensor]) -> Any:
    """The value again, its tensors taken from `leaves` in order."""
    kind = spec["k"]
    if kind == "tensor":
        return next(leaves)
    if kind in ("tuple", "list"):
        items = [unflatten(item, leaves) for item in spec["items"]]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {key: unflatten(item, leaves) for key, item in spec["items"]}
    if kind == "plain":
        return spec["v"]
    if kind == "int":
        return int(spec["v"])
    if kind == "float":
        return float.fromhex(spec["v"])
    if kind == "complex":
        return complex(float.fromhex(spec["v"][0]), float.fromhex(spec["v"][1]))
    if kind == "dtype":
        return getattr(torch, spec["v"])
    if kind == "device":
        return torch.device(spec["v"])
    raise Unsupported(f"a spec of kind {kind!r}")


def tensors_of(spec: Spec) -> list[Spec]:
    """The tensor layouts of a spec, in order."""
    kind = spec["k"]
    if kind == "tensor":
        return [spec]
    if kind in ("tuple", "list"):
        return [layout for item in spec["items"] for layout in tensors_of(item)]
    if kind == "dict":
        return [layout for _, item in spec["items"] for layout in tensors_of(item)]
    return []


def view_as(raw: torch.Tensor, layout: Spec) -> torch.Tensor:
    """The tensor of this layout at the start of a one-dimensional uint8 tensor."""
    dtype = DTYPES[layout["dtype"]]
    if not layout["bytes"]:
        return torch.empty(layout["shape"], dtype=dtype, device=raw.device)
    return raw[: layout["bytes"]].view(dtype).as_strided(layout["shape"], layout["stride"])


def resolved(value: Any) -> Any:
    """The value with conjugations and signs that torch has only noted written to memory."""
    spec, leaves = flatten(value)
    return unflatten(spec, iter([leaf.resolve_conj().resolve_neg() for leaf in leaves]))


def shape_of(spec: Spec) -> Any:
    """A hashable outline of the nesting (a list counts as a tuple) with dtype and shape of each tensor, without
    values.
    """
    kind = spec["k"]
    if kind == "tensor":
        return ("tensor", spec["dtype"], tuple(spec["shape"]))
    if kind in ("tuple", "list"):
        return ("sequence", *(shape_of(item) for item in spec["items"]))
    if kind == "dict":
        return ("dict", *((key, shape_of(item)) for key, item in spec["items"]))
    return (kind,)


def scalars_of(spec: Spec) -> list[tuple[str, Any]]:
    """The values that are no tensors, in order, as (kind, text)."""
    kind = spec["k"]
    if kind == "tensor":
        return []
    if kind in ("tuple", "list"):
        return [pair for item in spec["items"] for pair in scalars_of(item)]
    if kind == "dict":
        return [pair for _, item in spec["items"] for pair in scalars_of(item)]
    return [(kind, spec["v"])]


def leaves_of(value: Any) -> Iterator[torch.Tensor]:
    """The leaf tensors alone, fast: no spec is built."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from leaves_of(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from leaves_of(item)

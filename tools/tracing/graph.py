"""Traces a module with torch.export and describes every operator of its forward as plain data.

Covers what torch.export can follow for the shapes at hand: shapes, constants and branches on them are fixed. What it
cannot follow (branches on values, sizes that depend on values) is Untraceable, with one sentence and the task's line.
"""

import operator
import traceback
import warnings
from pathlib import Path
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

SMALL: Final = 64  # elements of a constant whose values are worth listing
MESSAGE: Final = 400
LINE: Final = 120
STATED: Final = "aten._assert_tensor_metadata"  # the exporter's own notes beside conversions: true for these shapes


class Untraceable(Exception):
    """torch.export cannot follow the forward, or it holds something that has no form as data."""


def describe(model: torch.nn.Module, inputs: list[Any]) -> dict[str, Any]:
    """Leaves, operators in order, outputs and how they are nested. Raises Untraceable."""
    exported = _export(model, inputs)
    signature = exported.graph_signature
    changed = sorted({f"the {_whose(spec)} {spec.target}" for spec in _mutations(signature)})
    if changed:
        raise Untraceable(f"forward changes in place: {', '.join(changed)}")
    specs = {spec.arg.name: spec for spec in signature.input_specs}
    leaves, nodes = [], []
    positions = _Positions()
    for node in exported.graph.nodes:
        if node.op == "placeholder":
            leaves.append(_leaf(node, specs[node.name], exported, positions))
        elif node.op == "call_function" and not _target(node.target).startswith(STATED):
            nodes.append(_operator(node))
        elif node.op == "get_attr":
            raise Untraceable("a branch or a loop is part of the graph (torch.cond and its like)")
    outputs = [_argument(item) for item in next(n for n in exported.graph.nodes if n.op == "output").args[0]]
    nest = pytree.tree_unflatten(list(range(len(outputs))), exported.call_spec.out_spec)
    return {"leaves": leaves, "nodes": nodes, "outputs": outputs, "nest": _nest(nest)}


class _Positions:
    """Counts the forward's own arguments."""

    def __init__(self) -> None:
        self.next = 0

    def take(self) -> int:
        self.next += 1
        return self.next - 1


def _export(model: torch.nn.Module, inputs: list[Any]) -> Any:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # An empty table keeps whole operators (softmax, layer_norm) and still takes in-place ones apart.
            return torch.export.export(model, tuple(inputs)).run_decompositions({})
        except Exception as error:
            raise Untraceable(_words(error)) from error


def _words(error: Exception) -> str:
    """One sentence, with the line of the task's own code that the exporter was at."""
    name, text = type(error).__name__, _first(error)
    if "data-dependent" in text.lower():
        text = "a branch, a loop or a size depends on the values of a tensor"
    elif "quantized" in text.lower():
        text = "quantised tensors cannot be traced"
    else:
        text = f"torch.export: {name}: {text}"
    where = _task_line(error)
    return f"{text} ({where})" if where else text


def _first(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:MESSAGE]


def _task_line(error: Exception) -> str:
    """The innermost frame outside of torch and of these tools."""
    ours = (str(Path(torch.__file__).parent), str(Path(__file__).resolve().parents[1]))
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((*ours, "<frozen"))]
    return f"line {frames[-1].lineno}: {frames[-1].line}"[:LINE] if frames and frames[-1].line else ""


def _whose(spec: Any) -> str:
    return "buffer" if spec.kind.name.startswith("BUFFER") else "input"


def _mutations(signature: Any) -> list[Any]:
    return [spec for spec in signature.output_specs if spec.kind.name != "USER_OUTPUT"]


def _leaf(node: Any, spec: Any, exported: Any, positions: _Positions) -> dict[str, Any]:
    kind = spec.kind.name
    entry: dict[str, Any] = {"name": node.name}
    if kind == "USER_INPUT":
        entry |= {"kind": "input", "position": positions.take()}
    elif kind == "PARAMETER" or (kind == "BUFFER" and spec.persistent):
        entry |= {"kind": kind.lower(), "target": spec.target}
    else:
        entry |= {"kind": "constant", "target": spec.target}
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return entry | {"kind": "scalar", "value": repr(value)}
    entry |= _tensor(value) | {"stride": _sizes(value.stride()), "offset": int(value.storage_offset())}
    if entry["kind"] == "constant" and value.numel() <= SMALL and not value.dtype.is_complex:
        held = exported.constants.get(spec.target, exported.state_dict.get(spec.target))
        if isinstance(held, torch.Tensor):
            entry["values"] = held.detach().flatten().tolist()
    return entry


def _tensor(value: torch.Tensor) -> dict[str, Any]:
    return {"shape": _sizes(value.shape), "dtype": _name(value.dtype)}


def _sizes(sizes: Any) -> list[int]:
    if not all(isinstance(size, int) for size in sizes):
        raise Untraceable("the shape of a result depends on values")
    return list(sizes)


def _operator(node: Any) -> dict[str, Any]:
    name = "getitem" if node.target is operator.getitem else _target(node.target)
    value = node.meta.get("val")
    entry: dict[str, Any] = {"name": node.name, "op": name}
    if isinstance(value, torch.Tensor):
        try:
            entry |= _tensor(value)
        except Untraceable as error:
            raise Untraceable(f"{name}: {error}") from error
    elif isinstance(value, list | tuple):
        entry |= {"parts": len(value)}
    entry["args"] = [_argument(item) for item in node.args]
    if node.kwargs:
        entry["kwargs"] = {key: _argument(item) for key, item in node.kwargs.items()}
    return entry


def _target(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return f"{target.namespace}.{target.__name__}"
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}"


def _argument(value: Any) -> Any:
    """Names of tensors become {"of": name}; dtypes and devices become text."""
    if isinstance(value, torch.fx.Node):
        return {"of": value.name}
    if isinstance(value, list | tuple):
        return [_argument(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else {"float": str(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": _name(value)}
    return {"text": str(value)}


def _nest(value: Any) -> Any:
    """Numbers of outputs in lists, {"tuple": …} and {"dict": …}."""
    if isinstance(value, int):
        return value
    if type(value) is list:
        return [_nest(item) for item in value]
    if type(value) is tuple:
        return {"tuple": [_nest(item) for item in value]}
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return {"dict": {key: _nest(item) for key, item in value.items()}}
    raise Untraceable(f"forward returns a {type(value).__name__}")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")

"""Turns a traced graph into values of the intermediate form; what has no lowering is Unsupported, by name."""

import functools
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent.backends.builtin.c_names import FLOATS
from agent.backends.builtin.graph import Graph, Leaf, Operator
from agent.backends.builtin.ir import Const, Source, Type, Unsupported, Value
from agent.backends.builtin.lower.registry import LOWERINGS, Dtype

TYPES: Final[dict[str, Type]] = {
    "float32": "f32", "bool": "bool", "int64": "index", "int32": "index", "uint8": "index",
}  # fmt: skip
HALVES: Final[dict[str, Type]] = {"float16": "f32", "bfloat16": "f32"}
PARTS: Final = ("pointwise", "activations", "views", "reductions", "losses", "products")


@dataclass(frozen=True)
class Lowered:
    """The outputs as values, their element types in memory, and the tensors that they are made of, by name."""

    outputs: tuple[Value, ...]
    dtypes: tuple[str, ...]
    leaves: Mapping[str, Leaf]


@functools.cache
def lowerings() -> Mapping[str, Any]:
    """The whole table."""
    for part in PARTS:
        importlib.import_module(f"agent.backends.builtin.lower.{part}")
    return LOWERINGS


def lower(graph: Graph, *, halves: bool = False) -> Lowered:
    """Raises Unsupported with the operator, element type or output that there is no kernel for.

    `halves`: tensors of 16-bit floats are known, too; what is between is computed in fp32, and rounded only where the
    task converts it.
    """
    _check_types(graph, TYPES | HALVES if halves else TYPES)
    known: dict[str, Any] = {leaf.name: leaf for leaf in graph.leaves}
    for node in graph.nodes:
        known[node.name] = _call(node, known)
    outputs, dtypes = [], []
    for output in graph.outputs:
        if not isinstance(output, dict) or "of" not in output:
            raise Unsupported("an output that is no tensor")
        value, dtype = _output(known[output["of"]], output["of"], graph)
        outputs.append(value)
        dtypes.append(dtype)
    return Lowered(tuple(outputs), tuple(dtypes), {leaf.name: leaf for leaf in graph.leaves})


def _check_types(graph: Graph, types: Mapping[str, Type]) -> None:
    """The first operator, else the first tensor, of a type that there are no kernels for."""
    for node in graph.nodes:
        if node.dtype is not None and node.dtype not in types:
            raise Unsupported(f"{node.op} on {node.dtype} tensors")
    for leaf in graph.leaves:
        if leaf.kind != "scalar" and leaf.dtype not in types and _is_read(graph, leaf.name):
            raise Unsupported(f"{leaf.dtype} tensors ({leaf.target or leaf.name})")


def _is_read(graph: Graph, name: str) -> bool:
    return any({"of": name} in _flat([*node.args, *node.kwargs.values()]) for node in graph.nodes)


def _flat(items: Sequence[Any]) -> list[Any]:
    return [part for item in items for part in (_flat(item) if isinstance(item, list | tuple) else [item])]


def _output(found: Any, name: str, graph: Graph) -> tuple[Value, str]:
    value = _source(found) if isinstance(found, Leaf) else found
    if not isinstance(value, Value):
        raise Unsupported(f"the output {name}")
    declared = next((node for node in graph.nodes if node.name == name), None)
    if declared is None or isinstance(value, Source):
        raise Unsupported("an output that is an input itself")
    if declared.dtype not in (*FLOATS, "bool") or (declared.dtype == "bool") != (value.type == "bool"):
        raise Unsupported(f"an output of type {declared.dtype} ({declared.op})")
    if declared.shape != value.shape:
        raise Unsupported(f"{declared.op} with the shape {declared.shape}")
    return value, declared.dtype


def _call(node: Operator, known: Mapping[str, Any]) -> Any:
    name = node.op.removeprefix("aten.").partition(".")[0]
    function = lowerings().get(name) if node.op.startswith("aten.") or node.op == "getitem" else None
    if function is None:
        raise Unsupported(node.op)
    try:
        args = [_argument(item, known) for item in node.args]
        kwargs = {key: _argument(item, known) for key, item in node.kwargs.items()}
        result = function(*args, **kwargs)
    except Unsupported as error:
        text = str(error)
        raise Unsupported(text if node.op.rpartition(".")[0] in text else f"{node.op}: {text}") from error
    except (TypeError, AttributeError, IndexError, ValueError) as error:
        # An overload with other arguments than the lowering knows.
        raise Unsupported(f"{node.op} with these arguments ({error})") from error
    if isinstance(result, Value) and node.shape is not None and result.shape != node.shape:
        result = _declared_shape(result, node)
    return result


def _declared_shape(result: Value, node: Operator) -> Value:
    if isinstance(result, Const) and node.shape is not None:
        return Const(node.shape, result.type, result.value)
    raise Unsupported(f"{node.op} with the shape {node.shape} (understood as {result.shape})")


def _argument(item: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(item, list | tuple):
        return [_argument(part, known) for part in item]
    if not isinstance(item, dict):
        return item
    if "of" in item:
        found = known[item["of"]]
        return _source(found) if isinstance(found, Leaf) else found
    if "dtype" in item:
        return Dtype(item["dtype"])
    return float(item["float"]) if "float" in item else None


@functools.cache
def _source(leaf: Leaf) -> Value:
    """One value for one tensor, so that loads of it are recognised as the same."""
    if leaf.kind == "scalar":
        raise Unsupported("an argument that is no tensor")
    kind = (TYPES | HALVES)[leaf.dtype]
    if leaf.kind == "constant":
        if leaf.values is not None and len(leaf.values) == 1:
            return Const(leaf.shape, "f32", float(leaf.values[0]))
        raise Unsupported(f"the tensor {leaf.target}, which is not in the state_dict")
    return Source(leaf.shape, kind, leaf.name, leaf.dtype, leaf.stride, 0)

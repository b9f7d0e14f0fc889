"""The report of tools/trace_task.py as frozen models: a task's forward as leaves, operators and outputs."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Leaf(_Frozen):
    """A tensor that the forward starts from. `stride` and `offset` count elements; `values` only of small constants."""

    name: str
    kind: Literal["input", "parameter", "buffer", "constant", "scalar"]
    position: int | None = None
    target: str | None = None
    shape: tuple[int, ...] = ()
    dtype: str = ""
    stride: tuple[int, ...] = ()
    offset: int = 0
    values: tuple[float | int | bool, ...] | None = None
    value: str | None = None


class Operator(_Frozen):
    """One call. Tensors among the arguments are {"of": name}; `parts` where it returns several tensors."""

    name: str
    op: str
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    parts: int | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}


class Graph(_Frozen):
    """`nest` says how the outputs are nested: numbers of outputs in lists, {"tuple": …} and {"dict": …}."""

    leaves: tuple[Leaf, ...]
    nodes: tuple[Operator, ...]
    outputs: tuple[Any, ...]
    nest: Any


class Reason(_Frozen):
    code: str
    detail: str


class TraceReport(_Frozen):
    """What one trace gave; `graph` exactly where the status is traced."""

    schema_version: Literal[1]
    tool: Literal["trace_task"]
    status: Literal["traced", "untraceable", "invalid", "error"]
    reasons: tuple[Reason, ...]
    seconds: float
    graph: Graph | None

"""Kinds of columns: how each is stored in parquet, and what the `datasets` library makes of it.

Objects whose keys differ from row to row (arguments, tools) are JSON text in parquet: as structs they would be united
and filled with nulls. The schema names them as `Json`, so that `datasets` gives them back as objects. The one exception
is `tools` for verl, whose dataset class takes structs only; there the exact text stands beside it as `tools_json`.
"""

import functools
import json
from collections.abc import Mapping
from typing import Any, Final

from agent.errors import ConfigError, install
from agent.export.chat import tool_objects
from agent.loop.actions import tool_schemas

_TEXT: Final = {"dtype": "string", "_type": "Value"}
_INT: Final = {"dtype": "int64", "_type": "Value"}
_FLOAT: Final = {"dtype": "float64", "_type": "Value"}
_FLAG: Final = {"dtype": "bool", "_type": "Value"}
_JSON: Final = {"_type": "Json"}
_CALL: Final = {"id": _TEXT, "type": _TEXT, "function": {"name": _TEXT, "arguments": _JSON}}


def _list(feature: Any) -> dict[str, Any]:
    return {"feature": feature, "_type": "List"}


_MESSAGE: Final = {
    "role": _TEXT,
    "content": _TEXT,
    "reasoning_content": _TEXT,
    "tool_calls": _list(_CALL),
    "tool_call_id": _TEXT,
    "name": _TEXT,
}
_FEATURES: Final[dict[str, Any]] = {
    "text": _TEXT,
    "int": _INT,
    "float": _FLOAT,
    "flag": _FLAG,
    "json": _JSON,
    "ints": _list(_INT),
    "floats": _list(_FLOAT),
    "messages": _list(_MESSAGE),
    "text_messages": _list(_MESSAGE | {"tool_calls": _list(_CALL | {"function": {"name": _TEXT, "arguments": _TEXT}})}),
    "turns": _list({"role": _TEXT, "content": _TEXT}),
    "sharegpt": _list({"from": _TEXT, "value": _TEXT}),
    "reward_model": {"style": _TEXT, "ground_truth": _TEXT},
    "extra_info": {
        "split": _TEXT,
        "index": _INT,
        "need_tools_kwargs": _FLAG,
        "task_name": _TEXT,
        "task_text": _TEXT,
        "task_sha256": _TEXT,
        "runs": _INT,
        "mean_reward": _FLOAT,
        "best_reward": _INT,
    },
}
_JSON_FIELD: Final = {"ARROW:extension:name": "arrow.json", "ARROW:extension:metadata": ""}
INSTALL: Final = install("parquet")


def pyarrow() -> Any:
    """The library. Raises ConfigError with what to install."""
    try:
        import pyarrow  # type: ignore[import-untyped, unused-ignore]
        import pyarrow.parquet  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise ConfigError("parquet needs pyarrow", hint=INSTALL) from None
    return pyarrow


@functools.cache
def present_tools(target: str = "cuda") -> tuple[dict[str, Any], ...]:
    """The tools of this version on a target, which the struct of verl's column is made for; cuda has all of them."""
    return tool_objects(tool_schemas(target))


def feature(kind: str) -> Any:
    """The kind as `datasets` describes it in a parquet file's metadata."""
    return _tools_feature() if kind == "tools" else _FEATURES[kind]


def yaml_feature(name: str, kind: str) -> list[str]:
    """The kind as a data card declares it for JSONL, where objects of many shapes are objects."""
    objects = ("messages", "text_messages", "tools")
    return _yaml(name, _list(_JSON) if kind in objects else feature(kind))


def arrow_schema(columns: Mapping[str, str]) -> Any:
    """The schema of one data set, with the features for `datasets` in its metadata."""
    pa = pyarrow()
    features = {name: feature(kind) for name, kind in columns.items()}
    fields = [_field(name, features[name]) for name in columns]
    described = json.dumps({"info": {"features": features}}, sort_keys=True)
    return pa.schema(fields, metadata={"huggingface": described})


def storable(columns: Mapping[str, str], record: Mapping[str, Any]) -> dict[str, Any]:
    """The record as parquet stores it: every column, JSON as text."""
    return {name: _stored(feature(kind), record.get(name), kind) for name, kind in columns.items()}


def dump(value: Any) -> str:
    """JSON text; NaN and infinities are refused, because strict readers refuse them."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _yaml(name: str, shape: Any) -> list[str]:
    first = f"- name: {name}"
    match shape:
        case {"_type": "Json"}:
            return [first, "  dtype: json"]
        case {"_type": "Value", "dtype": dtype}:
            return [first, f"  dtype: {dtype}"]
        case {"_type": "List", "feature": {"_type": "Json"}}:
            return [first, "  list: json"]
        case {"_type": "List", "feature": {"_type": "Value", "dtype": dtype}}:
            return [first, f"  list: {dtype}"]
        case {"_type": "List", "feature": inner}:
            return [first, "  list:", *(f"  {line}" for part in inner.items() for line in _yaml(*part))]
        case _:
            return [first, "  struct:", *(f"  {line}" for part in shape.items() for line in _yaml(*part))]


def _stored(shape: Any, value: Any, kind: str = "") -> Any:
    if value is None:
        return None
    if kind == "tools":
        return value if list(value) in [list(present_tools(target)) for target in ("cpu", "cuda")] else None
    if shape == _JSON:
        return dump(value)
    if shape.get("_type") == "List":
        inner = shape["feature"]
        plain = inner.get("_type") == "Value"
        return value if plain else [_stored(inner, item) for item in value]
    if "_type" in shape:
        return value
    return {name: _stored(part, value.get(name)) for name, part in shape.items()}


def _field(name: str, shape: Any) -> Any:
    """JSON is text whose field says so: readers that know the extension get it, others the text."""
    pa = pyarrow()
    plain = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_()}
    match shape:
        case {"_type": "Json"}:
            return pa.field(name, pa.string(), metadata=_JSON_FIELD)
        case {"_type": "Value", "dtype": dtype}:
            return pa.field(name, plain[dtype])
        case {"_type": "List", "feature": inner}:
            return pa.field(name, pa.list_(_field("element", inner)))
        case _:
            return pa.field(name, pa.struct([_field(part, inner) for part, inner in shape.items()]))


@functools.cache
def _tools_feature() -> Any:
    """One struct that holds every tool's parameters; verl's column only."""
    names = [name for tool in present_tools() for name in tool["function"]["parameters"]["properties"]]
    properties = {name: {"type": _TEXT, "description": _TEXT} for name in dict.fromkeys(names)}
    parameters = {"type": _TEXT, "properties": properties, "required": _list(_TEXT), "additionalProperties": _FLAG}
    return _list({"type": _TEXT, "function": {"name": _TEXT, "description": _TEXT, "parameters": parameters}})

"""trace_task.py: the operators of a forward as data, and every way in which there are none."""

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tracing import graph

from agent.backends.builtin.graph import Graph, TraceReport

ROOT = Path(__file__).resolve().parents[2]
TEXT = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x, factor):
        y = torch.relu_(self.norm(x) * factor)
        return {"rows": y, "sums": [y.double().float().sum(dim=-1)]}


def get_inputs():
    return [torch.randn(6, 4).t(), 2.0]


def get_init_inputs():
    return [6]
"""


def trace(path: Path) -> TraceReport:
    argv = [sys.executable, "-I", str(ROOT / "tools" / "trace_task.py"), str(path), "--target", "cpu"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return TraceReport.model_validate_json(done.stdout)


@pytest.mark.torch
def test_a_forward_becomes_leaves_operators_and_outputs(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(TEXT)
    report = trace(path)
    assert (report.status, report.reasons) == ("traced", ())
    assert report.graph is not None
    leaves = {leaf.target or leaf.name: leaf for leaf in report.graph.leaves}
    assert (leaves["x"].kind, leaves["x"].position, leaves["x"].shape, leaves["x"].stride) == (
        "input",
        0,
        (4, 6),
        (1, 4),
    )
    assert (leaves["factor"].kind, leaves["factor"].value) == ("scalar", "2.0")
    assert leaves["norm.weight"].kind == "parameter"
    operators = [node.op for node in report.graph.nodes]
    first = ["aten.layer_norm.default", "aten.mul.Tensor", "aten.relu.default"]
    assert operators == [*first, "aten._to_copy.default", "aten._to_copy.default", "aten.sum.dim_IntList"]
    assert report.graph.nest == {"dict": {"rows": 0, "sums": [1]}}


@pytest.mark.torch
def test_what_is_no_task_is_a_report_as_well(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(TEXT.replace("torch.relu_(", "torch.no_such_function("))
    report = trace(path)
    assert (report.status, report.graph, report.reasons[0].code) == ("untraceable", None, "task.untraceable")
    path.write_text("x = ")
    assert trace(path).reasons[0].code == "task.syntax"


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    argv = [sys.executable, "-I", str(ROOT / "tools" / "trace_task.py"), str(tmp_path / "no.py"), "--target", "cpu"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "no.py" in done.stderr


class Calls(torch.nn.Module):
    """A module that is one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def described(function: Callable[..., Any], *inputs: Any) -> Graph:
    return Graph.model_validate(json.loads(json.dumps(graph.describe(Calls(function), list(inputs)))))


def shrinking(x: torch.Tensor) -> torch.Tensor:
    while x.abs().max() > 1:
        x = x * 0.5
    return x


def through_numpy(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy() * 2)


def counted(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    return x[: int(count)] * 2


@pytest.mark.torch
@pytest.mark.parametrize(
    ("function", "inputs", "words"),
    [
        (lambda x: x * 2 if x.sum() > 0 else x - 1, [torch.randn(8)], "depends on the values of a tensor"),
        (shrinking, [torch.randn(8)], r"values of a tensor \(line \d+: while x.abs"),
        (counted, [torch.randn(8), torch.tensor(3)], r"values of a tensor \(line \d+: return x\[: int"),
        (lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), [torch.randn(8)], "torch.cond"),
        (lambda x: x[x > 0] * 2, [torch.randn(8)], "aten.index.Tensor: the shape of a result depends on values"),
        (lambda x: x.add_(1.0), [torch.randn(8)], "forward changes in place: the input"),
        (lambda x: x.dequantize(), [torch.randn(8)], "quantised"),
        (through_numpy, [torch.randn(8)], r"numpy.*\(line \d+: return torch.from_numpy"),
    ],
    ids=["branch", "loop", "size", "cond", "shape by values", "input in place", "quantised", "numpy"],
)
def test_what_cannot_be_traced_is_said_in_one_sentence(
    function: Callable[..., Any], inputs: list[Any], words: str
) -> None:
    if words == "quantised":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says that these types will go one day
            inputs = [torch.quantize_per_tensor(x, 0.1, 0, torch.qint8) for x in inputs]
    with pytest.raises(graph.Untraceable, match=words) as caught:
        described(function, *inputs)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.torch
def test_a_buffer_changed_in_place_is_named() -> None:
    model = torch.nn.BatchNorm1d(4).train()
    with pytest.raises(graph.Untraceable, match=r"in place: .*the buffer running_mean"):
        graph.describe(model, [torch.randn(3, 4)])


@pytest.mark.torch
def test_a_custom_function_is_seen_through() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    assert "aten.mul.Tensor" in [node.op for node in described(Double.apply, torch.randn(8)).nodes]


@pytest.mark.torch
def test_a_traced_task_has_a_name_and_the_gpu_that_was_leased(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's uid has no entry in passwd, and then torch.export cannot ask for a name (seen on a GPU machine)."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1234")
    monkeypatch.delenv("LOGNAME", raising=False)
    monkeypatch.delenv("USER", raising=False)
    asks = 'import os\nassert os.environ["LOGNAME"] and os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-1234"\n'
    path = tmp_path / "model.py"
    path.write_text(asks + TEXT)
    assert trace(path).status == "traced"

"""The built-in policy's kernels for target cpu: traced, generated, really compiled, compared with float64."""

import copy
import ctypes
import json
import subprocess
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from tracing import graph as tracing

from agent.backends.builtin import emit_cpu, emit_cuda, submission
from agent.backends.builtin.graph import Graph
from agent.backends.builtin.ir import Unsupported
from agent.backends.builtin.lowering import lower
from agent.backends.builtin.schedule import schedule

ROOT = Path(__file__).resolve().parents[2]
EPS = 2.0**-23
pytestmark = pytest.mark.torch


class Calls(nn.Module):
    """A module that is one function of its inputs and parts."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: Any) -> Any:
        parts = [getattr(self, name) for name in (*self._modules, *self._parameters)]
        return self.function(*inputs, *parts)


def traced(model: nn.Module, inputs: Sequence[Any]) -> Graph:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Graph.model_validate(json.loads(json.dumps(tracing.describe(model, list(inputs)))))


def leaves(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    return [leaf for part in parts for leaf in leaves(part)]


def computed(model: nn.Module, inputs: Sequence[Any], folder: Path, *flags: str) -> list[torch.Tensor]:
    """What the generated kernels give, called without any of torch's code."""
    graph = traced(model, inputs)
    low = lower(graph, halves=True)
    files, program = emit_cpu.sources(schedule(low.outputs, dtypes=low.dtypes))
    (folder / "kernels").mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "launcher.h").write_text((ROOT / "tools" / "binding" / "launcher.h").read_text())
    library = folder / "fused.so"
    argv = ["g++", "-O1", "-march=native", "-fopenmp", "-std=c++17", "-shared", "-fPIC", *flags]
    done = subprocess.run([*argv, str(folder / emit_cpu.FILE), "-o", str(library)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:2000]
    known = {f"in_{leaf.name}": leaf for leaf in graph.leaves}
    state = model.state_dict()
    arguments = []
    for buffer in program.inputs:
        leaf = known[buffer.name]
        arguments.append(inputs[leaf.position] if leaf.position is not None else state[leaf.target or ""])
    outputs = [
        torch.empty(shape, dtype=getattr(torch, buffer.dtype))
        for shape, buffer in zip(submission.output_shapes(graph), program.outputs, strict=True)
    ]
    scratch = [torch.empty(buffer.size, dtype=getattr(torch, buffer.dtype)) for buffer in program.scratch]
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (*arguments, *outputs, *scratch)]
    ctypes.CDLL(str(library)).fused(*pointers)
    return outputs


def check(model: nn.Module, inputs: Sequence[Any], folder: Path, *flags: str) -> None:
    """Every output within a few units in the last place of the float64 truth, or of eager's own error."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(torch.rand_like(parameter) + 0.5).add_(torch.randn_like(parameter), alpha=0.1)
        eager = leaves(model(*inputs))
        wide = [x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs]
        truth = leaves(copy.deepcopy(model).double()(*wide))
        mine = computed(model, inputs, folder, *flags)
    for got, reference, want in zip(mine, eager, truth, strict=True):
        assert got.shape == reference.shape and got.dtype == reference.dtype
        if not got.is_floating_point():
            assert torch.equal(got, reference)
            continue
        size = want.abs() + want.square().mean().sqrt()
        error, own = (float(((x.double() - want).abs() / size).nan_to_num(0.0).max()) for x in (got, reference))
        ulp = torch.finfo(got.dtype).eps
        assert error <= max((24 if ulp == EPS else 1) * ulp, 8 * own), (error / ulp, own / ulp)
        assert torch.equal(torch.isnan(got), torch.isnan(reference))


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def activations(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    """One output for every function that has a polynomial of its own, at sizes that leave a rest in every vector."""
    wide = x * 8
    return [
        F.gelu(x), torch.tanh(wide), torch.sigmoid(wide), torch.exp(x), torch.log(x.abs() + 1e-3), torch.expm1(x),
        torch.log1p(x.abs()), torch.sin(wide), torch.cos(wide), F.softplus(wide), F.mish(x), F.elu(x), F.silu(x),
        torch.where(x > y, x, y.clamp(-1, 1)).rsqrt(), x.round() + y.floor() - x.trunc(), x.pow(3) / (y.abs() + 1),
    ]  # fmt: skip


def norms(x: torch.Tensor, image: torch.Tensor, layer: nn.Module, group: nn.Module, batch: nn.Module) -> list[Any]:
    return [
        layer(x), F.rms_norm(x, (x.shape[-1],)), group(image), batch(image), F.normalize(x, dim=0), x.var(dim=-1),
        image.mean(dim=(2, 3)), x.std(), F.instance_norm(image),
    ]  # fmt: skip


def softmaxes(x: torch.Tensor, target: torch.Tensor) -> dict[str, Any]:
    masked = x.masked_fill(torch.ones(x.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    rows = x.flatten(0, 1)
    return {
        "last": masked.softmax(-1), "outer": x.softmax(1), "log": F.log_softmax(x, 0), "lse": x.logsumexp((1, 2)),
        "ce": F.cross_entropy(rows, target, ignore_index=3),
        "kl": F.kl_div(rows.log_softmax(-1), rows.flip(0).softmax(-1), reduction="sum"),
        "smooth": F.cross_entropy(rows, target, reduction="none", label_smoothing=0.1),
        "max": x.amax(2),
    }  # fmt: skip


def views(x: torch.Tensor, tokens: torch.Tensor, mask: torch.Tensor, table: nn.Module) -> list[Any]:
    y = table(tokens) + x.mT.mT[:, ::2]
    half = y.shape[-1] // 2
    turned = torch.cat([-y[..., half:], y[..., :half]], -1)
    spare = y.clone()
    spare[:, 1] = 0.5
    spare[..., 2:4] = turned[..., :2]
    spare[spare < -1] = -1.0
    return [
        spare + 1, turned * 2, torch.stack([y, turned], 1).flatten(1) + 1, y.transpose(0, 1).reshape(-1, 4) * 3,
        (y > 0) & mask, torch.tril(y), torch.roll(y, 2, 1).flip(0) * 1.5, y.repeat(1, 2, 1) * 2,
    ]  # fmt: skip


def halves(x: torch.Tensor, tokens: torch.Tensor, table: nn.Module, layer: nn.Module) -> list[torch.Tensor]:
    """In 16 bits as inputs, weights and outputs, and in fp32 between where the task says so."""
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
    return [
        F.gelu(x) * 1.5, (wide * scale).to(x.dtype) * table(tokens), layer(x), x.softmax(0), x.sum(-1), wide.exp(),
        x[:, ::2] + x[:, 1::2], (wide * 3).to(torch.bfloat16).float() + 1, x > 0, (x * 30000.0).abs() + 1e-7,
        torch.matmul(x, x.t()),
    ]  # fmt: skip


def products(x: torch.Tensor, y: torch.Tensor, first: nn.Module, last: nn.Module) -> list[torch.Tensor]:
    return [F.gelu(first(x)), last(torch.relu(first(x))), torch.softmax(x @ x.transpose(1, 2), -1) @ x, x @ y, y @ y]


def blocks(x: torch.Tensor, q: torch.Tensor, gate: nn.Module, up: nn.Module) -> list[torch.Tensor]:
    """Products of several tiles, blocks and batches, with what follows computed on their tiles where it can be."""
    scores = torch.softmax(q @ q.transpose(-1, -2) * 0.2, -1)
    return [
        F.silu(gate(x)) * up(x), (gate(x) + x[:, :1]).t() * 2, scores @ q, F.gelu(up(x)).view(31, 10, 4, 25),
        (x @ x.t()).sum(-1), (x.to(torch.bfloat16) @ x.t().to(torch.bfloat16)).float() > 1e9,
    ]  # fmt: skip


def narrow(dtype: torch.dtype) -> tuple[nn.Module, list[Any]]:
    model = Calls(halves, table=nn.Embedding(5, 38).to(dtype), layer=nn.LayerNorm(38).to(dtype))
    return model, [randn(21, 38).to(dtype), torch.arange(21) % 5]


def turned(x: torch.Tensor, y: torch.Tensor, bias: torch.Tensor) -> list[torch.Tensor]:
    """Read along one axis, written along another, in whole squares and in what is left of them."""
    return [
        torch.tanh(x.permute(0, 2, 1)) + y.permute(0, 2, 1) * bias, x.transpose(0, 2) * 2, (x > 0).transpose(1, 2),
        x.bfloat16().permute(2, 0, 1) + 1,
    ]  # fmt: skip


LARGE = 70_001
CASES: dict[str, tuple[nn.Module, list[Any]]] = {
    "activations": (Calls(activations), [randn(9, 37), randn(37)]),
    "norms": (
        Calls(norms, layer=nn.LayerNorm(70), group=nn.GroupNorm(2, 6), batch=nn.BatchNorm2d(6).eval()),
        [randn(33, 70), randn(3, 6, 5, 7)],
    ),
    "softmax and losses": (Calls(softmaxes), [randn(4, 21, 21), torch.arange(84) % 21]),
    "views": (
        Calls(views, table=nn.Embedding(11, 6)),
        [randn(3, 8, 6), torch.arange(12).reshape(3, 4) % 11, torch.arange(72).reshape(3, 4, 6) % 3 == 0],
    ),
    "products": (Calls(products, first=nn.Linear(40, 65), last=nn.Linear(65, 3)), [randn(2, 19, 40), randn(40)]),
    "blocks": (Calls(blocks, gate=nn.Linear(70, 100), up=nn.Linear(70, 100)), [randn(310, 70), randn(3, 4, 37, 20)]),
    "turned": (Calls(turned), [randn(2, 70, 37), randn(2, 70, 37), randn(70)]),
    "bfloat16": narrow(torch.bfloat16),
    "float16": narrow(torch.float16),
    "few long rows": (
        Calls(lambda x, y: [x.sum(), x.softmax(-1), (x * y).mean(0), F.mse_loss(x, x * y), x.norm(dim=1)]),
        [randn(3, LARGE), randn(1, LARGE)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_kernels_are_as_exact_as_eager(name: str, tmp_path: Path) -> None:
    model, inputs = CASES[name]
    check(model, inputs, tmp_path)


@pytest.mark.parametrize("name", ["activations", "float16"])
def test_machines_without_wide_vectors_get_the_same(name: str, tmp_path: Path) -> None:
    model, inputs = CASES[name]
    check(model, inputs, tmp_path, "-march=x86-64")


@pytest.mark.parametrize(
    ("function", "inputs", "words"),
    [
        (lambda x: x.cumsum(-1), [randn(4, 4)], "aten.cumsum"),
        (lambda x: F.conv2d(x, x), [randn(1, 1, 4, 4)], "aten.conv2d"),
        (lambda x: x * 2, [torch.randn(4, dtype=torch.complex64)], "complex64"),
        (lambda x: x * 2, [randn(4).double()], "float64"),
        (lambda x: x.argmax(-1), [randn(4, 4)], "aten.argmax"),
        (lambda x: x + torch.tensor([1.0, 2.0]), [randn(4, 2)], "state_dict"),
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize(), [randn(4)], "quantize"),
        (lambda x: x, [randn(4)], "input itself"),
        (lambda x: torch.fft.rfft(x).abs(), [randn(4)], "aten.fft_rfft.default on complex64"),
        (lambda x: x * x.max().item(), [randn(4)], "aten.item"),
        (lambda x: F.dropout(x, training=True), [randn(4)], "aten.native_dropout"),
        (lambda x: x.topk(2).values, [randn(4)], "aten.topk"),
        (lambda x: (x > 0).sum(), [randn(4)], "an output of type int64"),
        (lambda x: [x * 2, None], [randn(4)], "an output that is no tensor"),
    ],
    ids=[
        "scan",
        "convolution",
        "complex",
        "double",
        "indices",
        "hidden constant",
        "quantised",
        "identity",
        "fourier",
        "number of a tensor",
        "random",
        "selection",
        "integers",
        "no tensor",
    ],
)
def test_what_there_is_no_kernel_for_is_named(function: Callable[..., Any], inputs: list[Any], words: str) -> None:
    try:
        graph = traced(Calls(function), inputs)
    except tracing.Untraceable as error:
        assert words in str(error)
        return
    with pytest.raises(Unsupported, match=words):
        submission.make(graph, "cpu")


@pytest.mark.parametrize(
    ("function", "times"), [(lambda x: x * 2, 0), (lambda x: (x.float() + 1).bfloat16().float(), 1)]
)
def test_halves_are_rounded_where_they_are_stored_or_the_task_says_so(function: Callable[..., Any], times: int) -> None:
    graph = traced(Calls(function), [randn(8).bfloat16()])
    assert submission.make(graph, "cpu").files[emit_cpu.FILE].count("rounded<") == times


def test_what_is_read_and_written_in_different_orders_is_turned_in_registers() -> None:
    model, inputs = CASES["turned"]
    text = submission.make(traced(model, inputs), "cpu").files[emit_cpu.FILE]
    assert text.count("transposed<W / 2>(") >= 3 and "gather<PART>(v" in text


def test_what_follows_a_product_needs_no_memory_of_its_own() -> None:
    model, inputs = CASES["blocks"]
    made = submission.make(
        traced(Calls(lambda x, _q, gate, up: F.silu(gate(x)) * up(x), **dict(model._modules)), inputs), "cpu"
    )
    assert made.kernels == 2 and made.files["model_new.py"].count("torch.empty((310, 100)") == 1


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_the_same_trace_gives_the_same_text(target: str) -> None:
    model, inputs = CASES["softmax and losses"]
    graph = traced(model, inputs)
    assert submission.make(graph, target).files == submission.make(graph, target).files


def test_cuda_sources_hold_no_more_than_the_launcher_takes() -> None:
    model, inputs = CASES["norms"]
    files, program = emit_cuda.sources(schedule(lower(traced(model, inputs)).outputs, machine=emit_cuda.MACHINE))
    text = files[emit_cuda.FILE]
    assert text.count("{") == text.count("}")
    assert all(f"{buffer.name}" in text for buffer in (*program.inputs, *program.outputs, *program.scratch))


def test_a_module_with_nested_names_takes_the_task_s_state_dict(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.LayerNorm(6), nn.Sequential(nn.BatchNorm1d(6), nn.SiLU())).eval()
    graph = traced(model, [randn(5, 6)])
    space: dict[str, Any] = {}
    text = submission.make(graph, "cpu").files["model_new.py"].replace("import cpu_extension\n", "")
    exec(text, space)
    made = space["ModelNew"]()
    made.load_state_dict(model.state_dict())
    assert [name for name, _ in made.named_parameters()] == [name for name, _ in model.named_parameters()]

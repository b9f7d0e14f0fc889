"""Tasks at other sizes, their submissions as modules on CPU tensors, and the comparison that a judge makes."""

import copy
import json
import re
import sys
import types
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from referee import numerics, oracle
from referee.truth import NOISE
from torch import nn
from tracing import graph as tracing

from agent.backends.builtin.graph import Graph

TASKS: Final = Path(__file__).resolve().parents[2] / "benchmarks" / "builtin_tasks"
# Sizes in a task's text become others, the same everywhere: no multiples of a vector; multiples; axes of one; long.
ODD: Final = {
    4096: 53, 1024: 70, 8192: 91, 2048: 19, 512: 37, 256: 33, 128: 21, 768: 45, 64: 24, 48: 7, 56: 5, 32: 6, 16: 3,
    5000: 23,
}  # fmt: skip
EVEN: Final = {
    4096: 264, 1024: 136, 8192: 60, 2048: 23, 512: 72, 256: 36, 128: 20, 768: 48, 64: 16, 48: 12, 56: 6, 32: 8, 16: 3,
    5000: 40,
}  # fmt: skip
ONES: Final = {
    4096: 1, 1024: 2, 8192: 1, 2048: 3, 512: 2, 256: 1, 128: 1, 768: 2, 64: 8, 48: 1, 56: 2, 32: 2, 16: 1, 5000: 2,
}  # fmt: skip
WIDE: Final = {
    1024: 2050,
    4096: 9000,
    512: 1100,
    768: 3072,
    256: 132,
    5000: 40,
    2048: 5,
    8192: 4100,
    128: 66,
    16: 2,
    48: 40,
}
SIZES: Final = {"odd": ODD, "even": EVEN, "ones": ONES, "wide": WIDE}
_INTEGER: Final = re.compile(r"(?<![\w.])\d+(?![\w.])")
NARROW_ROWS: Final = {"wide": {4096: 3, 8192: 5, 1024: 9, 2048: 5, 512: 7}}


def task_text(name: str, sizes: str) -> str:
    text = (TASKS / f"{name}.py").read_text()
    head, rows, rest = text.partition("\nROWS")
    if rows:
        # The number of rows is on a line of its own: few, whatever the width.
        line, _, rest = rest.partition("\n")
        count, width = line.replace(", WIDTH =", "").removeprefix(" =").split(",")
        few = NARROW_ROWS.get(sizes, {}).get(int(count), SIZES[sizes].get(int(count), int(count)))
        rest = f"\nROWS, WIDTH = {few}, {SIZES[sizes].get(int(width), int(width))}\n" + _resized(rest, sizes)
        return head + rest
    return _resized(text, sizes)


def _resized(text: str, sizes: str) -> str:
    return _INTEGER.sub(lambda match: str(SIZES[sizes].get(int(match[0]), int(match[0]))), text)


def task(text: str) -> tuple[nn.Module, list[Any]]:
    space: dict[str, Any] = {}
    exec(text, space)
    torch.manual_seed(0)
    model = space["Model"](*space["get_init_inputs"]()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(torch.rand_like(parameter) + 0.5).add_(torch.randn_like(parameter), alpha=0.1)
        for name, buffer in model.named_buffers():
            if buffer.is_floating_point():
                buffer.add_(torch.rand_like(buffer) if "var" in name else torch.randn_like(buffer))
    return model, space["get_inputs"]()


def traced(model: nn.Module, inputs: Sequence[Any]) -> Graph:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Graph.model_validate(json.loads(json.dumps(tracing.describe(model, list(inputs)))))


def new_module(
    text: str, model: nn.Module, extension: Any = None, *, file: Path | None = None, arguments: Sequence[Any] = ()
) -> nn.Module:
    """ModelNew of a model_new.py with the task's weights, for CPU tensors. Triton needs the text in a file."""
    text = text.replace('"cuda"', '"cpu"')
    module = types.ModuleType("model_new")
    if file is not None:
        file.write_text(text)
        module.__file__ = str(file)
    if extension is not None:
        sys.modules["cuda_extension"] = extension
    try:
        exec(compile(text, str(file or "model_new.py"), "exec"), module.__dict__)
    finally:
        sys.modules.pop("cuda_extension", None)
    new: nn.Module = module.__dict__["ModelNew"](*arguments)
    new.load_state_dict(model.state_dict())
    return new.eval()


def leaves(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, Mapping) else value
    return [leaf for part in parts for leaf in leaves(part)]


def special(inputs: Sequence[Any]) -> list[Any]:
    """NaN, infinities and large values in the first rows of every float input."""
    changed = []
    for number, x in enumerate(inputs):
        if isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel() > 8:
            x = x.clone()
            flat = x.flatten()
            for k, value in enumerate((float("nan"), float("inf"), float("-inf"), 3e4, -3e4)):
                flat[(k * 7919 + 131 * number) % flat.numel()] = value
            x = flat.reshape(x.shape)
        changed.append(x)
    return changed


def differences(model: nn.Module, new: nn.Module, inputs: Sequence[Any]) -> list[str]:
    """Why the outputs are not the reference's, by the judge's own measure; empty where they are."""
    with torch.no_grad():
        reference = leaves(model(*(x.clone() if isinstance(x, torch.Tensor) else x for x in inputs)))
        wide = [x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs]
        truth = leaves(copy.deepcopy(model).double()(*wide))
        got = leaves(new(*inputs))
        noise = [[oracle._noisy(x) if isinstance(x, torch.Tensor) else x for x in inputs] for _ in NOISE]
        noisy = [leaves(model(*values)) for values in noise]
    found = [] if len(got) == len(reference) else ["another number of outputs"]
    for number, (mine, theirs, true) in enumerate(zip(got, reference, truth, strict=False)):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            found.append(f"output {number} is {mine.dtype} {tuple(mine.shape)}")
            continue
        tolerance = numerics.Tolerance(theirs.dtype, theirs.numel())
        tolerance.see(true, inputs=max(x.numel() for x in inputs if isinstance(x, torch.Tensor)))
        rounded = [theirs, *(outputs[number] for outputs in noisy)]
        sizes = tolerance.sizes(true, rounded)
        tolerance.learn(numerics.measure(theirs, truth=true, reference=theirs, sizes=sizes))
        error = numerics.measure(mine, truth=true, reference=theirs, sizes=sizes)
        if tolerance.counts_few:
            if wrong := tolerance.astray(mine, true.to(theirs.dtype), rounded):
                found.append(f"output {number}: {wrong}")
        elif not tolerance.allows(error):
            found.append(f"output {number}: error {error} of {tolerance.largest}, {tolerance.rms}")
    return found

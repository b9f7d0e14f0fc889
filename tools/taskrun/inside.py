"""The child's side: loads one model.py, runs it and writes JSON lines to the descriptor that it was given.

Lines are {"phase": …} before each step (so that a hang or a crash has a place) and one last
{"status", "code", "detail", "summary"}.
"""

import importlib.util
import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from referee import faults, instructions

del sys.path[0]  # a task sees no tool

SEED: Final = 20240229
MAX_DETAIL: Final = 600
NO_MEMORY: Final = ("not enough memory", "allocate memory")
T = TypeVar("T")


class Invalid(Exception):
    """model.py cannot be a task; `code` is a task.* reason."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class Channel:
    """Where the lines go."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")

    def phase(self, name: str) -> None:
        self._write({"phase": name})

    def result(self, status: str, code: str = "", detail: str = "", summary: dict[str, Any] | None = None) -> None:
        self._write({"status": status, "code": code, "detail": detail[:MAX_DETAIL], "summary": summary or {}})

    def _write(self, value: dict[str, Any]) -> None:
        self._file.write(json.dumps(value) + "\n")
        self._file.flush()


class Task:
    """One model.py, step by step; every step turns what the file does wrong into Invalid with a line number."""

    def __init__(self, path: Path, device: torch.device, channel: Channel) -> None:
        self.path = path
        self.device = device
        self.channel = channel
        self.module = self._load()
        self._require("Model", "task.no_model", "class Model")
        self._require("get_inputs", "task.no_get_inputs", "function get_inputs()")
        self._require("get_init_inputs", "task.no_get_init_inputs", "function get_init_inputs()")

    def _load(self) -> Any:
        try:
            compile(self.path.read_bytes(), "model.py", "exec")
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            where = f" (model.py line {line})" if line else ""
            text = getattr(error, "msg", None) or str(error)
            raise Invalid("task.syntax", f"model.py is not valid Python: {text}{where}") from error
        spec = importlib.util.spec_from_file_location("model", self.path)
        assert spec is not None and spec.loader is not None
        loader = spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules["model"] = module
        self.step("import of model.py", lambda: loader.exec_module(module))
        return module

    def _require(self, name: str, code: str, what: str) -> None:
        value = getattr(self.module, name, None)
        if value is None or not callable(value):
            raise Invalid(code, f"model.py has no {what}")
        if name == "Model" and not (isinstance(value, type) and issubclass(value, torch.nn.Module)):
            raise Invalid("task.no_model", "Model in model.py is not a subclass of torch.nn.Module")

    def step(self, name: str, action: Callable[[], T]) -> T:
        """Runs `action`; whatever it raises becomes Invalid."""
        self.channel.phase(name)
        try:
            return action()
        except Invalid:
            raise
        except BaseException as error:
            raise self._invalid(name, error) from error

    def _invalid(self, name: str, error: BaseException) -> Invalid:
        lines = [
            entry.lineno for entry in traceback.extract_tb(error.__traceback__) if entry.filename == str(self.path)
        ]
        where = f" (model.py line {lines[-1]})" if lines else ""
        text = " ".join(str(error).split())[:300]
        if faults.of_machine(text):
            return Invalid("task.no_cuda_device", f"the GPU cannot be used: {text}{where}")
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(m in text for m in NO_MEMORY):
            return Invalid("task.out_of_memory", f"{name} needs more memory than there is: {text}{where}")
        if isinstance(error, SystemExit):
            return Invalid("task.exits", f"{name} ends the process: {type(error).__name__}: {text}{where}")
        return Invalid("task.raises", f"{name} raises {type(error).__name__}: {text}{where}")

    def model(self) -> torch.nn.Module:
        init = self.step("get_init_inputs()", self.module.get_init_inputs)
        if not isinstance(init, list | tuple):
            raise Invalid("task.bad_init_inputs", f"get_init_inputs() returns {type(init).__name__}, not a list")
        torch.manual_seed(SEED)
        made = self.step("Model(*get_init_inputs())", lambda: self.module.Model(*init))
        return self.step("Model.eval()", lambda: made.eval().to(self.device))

    def inputs(self, seed: int) -> list[Any]:
        torch.manual_seed(seed)
        values = self.step("get_inputs()", self.module.get_inputs)
        if not isinstance(values, list | tuple):
            raise Invalid("task.bad_inputs", f"get_inputs() returns {type(values).__name__}, not a list")
        if not any(True for value in values for _ in tensors(value)):
            raise Invalid("task.no_tensors", "get_inputs() returns no tensor")
        return [value.to(self.device) if isinstance(value, torch.Tensor) else value for value in values]

    def forward(self, model: Callable[..., Any], inputs: list[Any]) -> Any:
        with torch.no_grad():
            return self.step("forward", lambda: model(*inputs))


def tensors(value: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in nested lists, tuples and dicts, with their paths."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from tensors(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors(item, f"{path}[{key!r}]")


def copied(inputs: list[Any]) -> list[Any]:
    """Inputs of equal content and layout in new memory."""
    return [
        value.clone(memory_format=torch.preserve_format) if isinstance(value, torch.Tensor) else value
        for value in inputs
    ]


def same(first: Any, second: Any, *, tolerance: float) -> bool:
    pairs = list(zip(tensors(first), tensors(second), strict=False))
    if len(pairs) != len(list(tensors(first))) or len(pairs) != len(list(tensors(second))):
        return False
    return all(_close(a, b, tolerance) for (_, a), (_, b) in pairs)


def _close(a: torch.Tensor, b: torch.Tensor, tolerance: float) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if tolerance == 0.0 or not a.is_floating_point():
        return bool(torch.equal(a, b))
    scale = float(a.abs().nan_to_num(0.0, 0.0, 0.0).max()) if a.numel() else 0.0
    return bool(torch.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True))


def describe(path: str, value: torch.Tensor) -> dict[str, Any]:
    entry = {"path": path, "shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
    return entry | {"stride": list(value.stride()), "bytes": value.numel() * value.element_size()}


def inspect(task: Task) -> dict[str, Any]:
    """Runs the task a few times and describes it. Raises Invalid."""
    model = task.model()
    inputs = task.inputs(SEED + 1)
    given = copied(inputs)
    first = task.forward(model, inputs)
    if not any(True for _ in tensors(first)):
        raise Invalid("task.no_tensors", f"forward returns no tensor but {type(first).__name__}")
    mutated = not same(inputs, given, tolerance=0.0)
    _check_finite(first)
    second, seconds = first, []
    for _ in range(3):
        fresh = copied(given)
        started = time.perf_counter()
        second = task.forward(model, fresh)
        if task.device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
        if not same(first, second, tolerance=1e-3):
            text = (
                "forward gives different outputs for the same inputs and weights (dropout, random numbers, kept state?)"
            )
            raise Invalid("task.nondeterministic", text)
    other_inputs = task.inputs(SEED + 2)
    fixed = same(given, other_inputs, tolerance=0.0)
    if not fixed and same(first, task.forward(model, copied(other_inputs)), tolerance=0.0) and _any_float(first):
        raise Invalid("task.ignores_inputs", "forward gives the very same output for different inputs")
    state = model.state_dict()
    return {
        "inputs": [_input(index, value) for index, value in enumerate(given)],
        "outputs": [describe(path, value) for path, value in tensors(first)],
        "state_dict": [describe(name, value) for name, value in state.items()],
        "parameter_count": sum(parameter.numel() for parameter in model.parameters()),
        "inputs_random": not fixed,
        "mutates_inputs": mutated,
        "eager_ms": round(statistics.median(seconds) * 1e3, 3),
        "device": str(task.device),
    }


def _input(index: int, value: Any) -> dict[str, Any]:
    if isinstance(value, torch.Tensor):
        return describe(f"[{index}]", value)
    return {"path": f"[{index}]", "type": type(value).__name__, "value": repr(value)[:100]}


def _any_float(output: Any) -> bool:
    return any(value.is_floating_point() for _, value in tensors(output))


def _check_finite(output: Any) -> None:
    floats = [value for _, value in tensors(output) if value.is_floating_point() and value.numel()]
    if floats and not any(bool(value.isfinite().any()) for value in floats):
        raise Invalid("task.not_finite", "forward returns no finite number at all")


def compile_once(task: Task) -> dict[str, Any]:
    """One call of torch.compile's result, which fills the compile cache."""
    model = task.model()
    inputs = task.inputs(SEED + 1)
    started = time.perf_counter()
    if task.device.type == "cpu":
        instructions.first_call(lambda: task.forward(torch.compile(model), inputs))
    else:
        task.forward(torch.compile(model), inputs)
    return {"first_call_s": round(time.perf_counter() - started, 3)}


def trace(task: Task) -> dict[str, Any]:
    """The operators of the forward (tracing/graph.py)."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tracing import graph

    model, inputs = task.model(), task.inputs(SEED)
    task.channel.phase("trace")
    try:
        return graph.describe(model, inputs)
    except graph.Untraceable as error:
        raise Invalid("task.untraceable", str(error)) from error


ACTIONS: Final = {"inspect": inspect, "compile": compile_once, "trace": trace}


def main() -> int:
    mode, target, path, descriptor = sys.argv[1:5]
    channel = Channel(int(descriptor))
    if target == "cuda" and not torch.cuda.is_available():
        channel.result("error", "runtime.no_device", "no CUDA device is visible to torch")
        return 0
    try:
        task = Task(Path(path), torch.device(target), channel)
        summary = ACTIONS[mode](task)
    except Invalid as error:
        channel.result("invalid", error.code, error.detail)
    else:
        channel.result("ok", summary=summary)
    # Threads that the task left running would keep the interpreter alive.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())

"""Loads a task's text or a submission into a worker, and reads and writes the state_dict of what was loaded."""

import importlib.util
import linecache
import os
import random
import sys
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from referee import arena, instructions, protocol, tree

TASK_NAME: Final = "task_model"


class LoadError(Exception):
    """What was to be loaded cannot be; `code` is the reason's code."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


@dataclass(frozen=True)
class Task:
    """A task's module, executed from memory."""

    module: types.ModuleType
    device: str
    places: dict[str, bool]  # whether a function of the task works with the GPU as default device

    def init_inputs(self, *, seed: int) -> list[Any]:
        seed_everything(seed)
        return list(self.module.get_init_inputs())

    def inputs(self, *, seed: int) -> list[Any]:
        return list(self._on_device("get_inputs", self.module.get_inputs, seed))

    def build(self, *, seed: int) -> torch.nn.Module:
        arguments = self.init_inputs(seed=seed)
        model: torch.nn.Module = self._on_device("Model", lambda: self.module.Model(*arguments), seed)
        return model.to(self.device).eval()

    def _on_device(self, name: str, make: Callable[[], Any], seed: int) -> Any:
        """What `make` returns, made on the device where its code allows that (a hundred times as fast for large
        tensors), otherwise moved there. Dtypes stay as they are.
        """
        seed_everything(seed)
        if self.device == "cpu":
            return make()
        if self.places.setdefault(name, True):
            try:
                with torch.device(self.device):
                    return moved(make(), self.device)
            except Exception:  # generators and arrays of the CPU; what is really wrong raises again below
                self.places[name] = False
                seed_everything(seed)
        return moved(make(), self.device)


def moved(value: Any, device: str) -> Any:
    """Every tensor of a nested value on the device, with its strides; a module in place."""
    if isinstance(value, torch.nn.Module):
        return value.to(device)
    if isinstance(value, torch.Tensor):
        return value if value.device.type == device else _copied(value, device)
    if isinstance(value, dict):
        return {key: moved(item, device) for key, item in value.items()}
    if isinstance(value, (tuple, list)) and type(value) in (tuple, list):
        return type(value)(moved(item, device) for item in value)
    return value


def _copied(tensor: torch.Tensor, device: str) -> torch.Tensor:
    return tree.view_as(arena.raw_bytes(tensor.detach()).to(device), tree.layout_of(tensor))


def seed_everything(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def load_task(text: str, *, device: str = "cpu") -> Task:
    """Execute the text of a model.py; it is in no file, tracebacks still show its lines."""
    filename = f"<{TASK_NAME}>"
    module = types.ModuleType(TASK_NAME)
    module.__file__ = filename
    sys.modules[TASK_NAME] = module
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    try:
        exec(compile(text, filename, "exec"), module.__dict__)
    except SyntaxError as error:
        raise LoadError("task.syntax", f"model.py: {_told(error)}") from error
    except Exception as error:
        raise LoadError("task.raises", f"model.py: {_told(error)}") from error
    for name in ("Model", "get_inputs", "get_init_inputs"):
        if not callable(getattr(module, name, None)):
            raise LoadError(f"task.no_{name.lower()}", f"model.py has no {name}")
    return Task(module=module, device=device, places={})


def load_submission(
    folder: Path, *, module_folder: str | None, init: Any, seed: int, device: str | None = None
) -> torch.nn.Module:
    """Import model_new.py and construct ModelNew, on `device` where the reference was made there. Only the built
    module's folder comes before the standard paths.
    """
    path = folder / "model_new.py"
    if module_folder is not None:
        sys.path.insert(0, module_folder)
    sys.argv = [str(path)]
    spec = importlib.util.spec_from_file_location("model_new", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise LoadError("load.no_model_new", "model_new.py is missing")
    module = importlib.util.module_from_spec(spec)
    sys.modules["model_new"] = module
    seed_everything(seed)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise LoadError("load.syntax", f"model_new.py: {_told(error)}") from error
    except Exception as error:
        raise LoadError("load.import", f"model_new.py: {_told(error)}") from error
    made = getattr(module, "ModelNew", None)
    if not isinstance(made, type) or not issubclass(made, torch.nn.Module):
        raise LoadError("load.no_class", "model_new.py defines no class ModelNew(nn.Module)")
    try:
        model: torch.nn.Module = _constructed(made, init, seed=seed, device=device)
    except Exception as error:
        raise LoadError("load.constructor", f"ModelNew(*get_init_inputs()): {_told(error)}") from error
    return model.eval()


def _constructed(made: Any, init: Any, *, seed: int, device: str | None) -> Any:
    seed_everything(seed)
    if device is not None:
        try:
            with torch.device(device):
                return made(*init)
        except Exception:  # code that insists on the CPU is moved afterwards; what is really wrong raises again
            seed_everything(seed)
    return made(*init)


def compiled(model: torch.nn.Module, *, mode: str) -> Any:
    """torch.compile of the reference; how many graphs it made is asked for after the first call."""
    import torch._dynamo

    torch._dynamo.reset()
    if instructions.promised():
        instructions.believe(True)
    if mode == "max-autotune" and torch.cuda.is_initialized():
        mode = "max-autotune-no-cudagraphs"  # a graph's outputs are lost at its next call, and all are compared
    return torch.compile(model, mode=None if mode == "default" else mode)


def describe_state(model: torch.nn.Module) -> list[tuple[str, tree.Spec]]:
    return [(name, tree.layout_of(value.contiguous())) for name, value in model.state_dict().items()]


def load_state(model: torch.nn.Module, state: dict[str, torch.Tensor]) -> None:
    try:
        model.load_state_dict(state, strict=True)
    except Exception as error:
        raise LoadError("load.state_dict", _told(error)) from error


def tensors_from(request: protocol.Received) -> list[torch.Tensor]:
    """The tensors of `init`, which travel in the message's binary part."""
    raw = torch.frombuffer(bytearray(request.blob), dtype=torch.uint8) if request.blob else torch.empty(0)
    found, at = [], 0
    for layout in tree.tensors_of(request.fields["init"]):
        found.append(tree.view_as(raw[at : at + layout["bytes"]].clone(), layout))
        at += layout["bytes"]
    return found


def compile_counts() -> dict[str, int]:
    """How many graphs torch.compile made in this process, and how many came from the warmed cache."""
    from torch._dynamo.utils import counters

    inductor = counters["inductor"]
    return {
        "graphs": int(counters["stats"]["unique_graphs"]),
        "cache_hits": int(inductor["fxgraph_cache_hit"]),
        "cache_misses": int(inductor["fxgraph_cache_miss"]),
    }


def _told(error: BaseException) -> str:
    lines = traceback.extract_tb(error.__traceback__)
    own = [line for line in lines if os.sep + "referee" + os.sep not in line.filename]
    where = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {str(error)[:1200]}{where}"

"""Which torch operators and which GPU kernels ran during a call: the dispatcher mode of this thread and the profiler
of all threads.

Evidence from inside the submission's process: honest code cannot avoid it, code that is hostile to it can. What stands
behind it is outside: page tables, undefined symbols of the rebuilt module, and files that are mapped executable.
"""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.autograd.profiler import profile
from torch.utils._python_dispatch import TorchDispatchMode

from referee import flags

NAME: Final = 400

# Private in torch; without it the profiler sees this thread only.
_Config = getattr(torch._C._profiler, "_ExperimentalConfig", None)


class _Log(TorchDispatchMode):  # type: ignore[misc] # torch is not typed here
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.flags = flags.Watch()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False keeps torch from importing torch.compile's whole compiler at the first operator (1 to 4 s); it does so
        to keep the method below out of a compilation, and where one can happen, below, it still does.
        """
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(str(func))
        self.flags.look()
        return func(*args, **(kwargs or {}))


class _LogBesideCompiled(_Log):
    """Lets torch.compile do what it does without a log: under `_Log` it gives up, and with fullgraph=True it raises."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_dispatch__(func, types, args, kwargs)


def watched(
    run: Callable[[], list[Any]], *, device: str, policy: str
) -> tuple[list[str], list[list[Any]] | None, list[Any]]:
    """Names of the operators seen (`aten.mm.default` from the mode, `aten::mm` from the profiler) and of precision
    flags that were changed when one ran, on a GPU every kernel as [name, calls, microseconds], and what `run` returned.
    """
    options: dict[str, Any] = {}
    if _Config is not None:
        options["experimental_config"] = _Config(profile_all_threads=True)
    log = _Log() if policy == "strict" else _LogBesideCompiled()
    # Not torch.profiler: it imports torch.compile's whole compiler, 1 to 4 s, only to read a setting of it.
    with profile(use_kineto=True, use_device="cuda" if device == "cuda" else None, **options) as record, log:
        outputs = run()
    events = record.function_events
    names = log.names | {event.name for event in events if "::" in event.name and event.device_type.name == "CPU"}
    names |= {f"{flags.LOGGED}{change}" for change in log.flags.changed}
    return sorted(names), _kernels(events) if device == "cuda" else None, outputs


def _kernels(events: Any) -> list[list[Any]]:
    found: dict[str, list[float]] = {}
    for event in events:
        if event.device_type.name == "CUDA" and not event.name.startswith("ProfilerStep"):
            entry = found.setdefault(event.name, [0, 0.0])
            entry[0] += 1
            entry[1] += event.time_range.elapsed_us()
    return [[name[:NAME], count, round(us, 3)] for name, (count, us) in sorted(found.items())]

"""Which torch operators ran during a call, from two sources: the dispatcher mode of this thread and the profiler of
all threads.

Evidence from inside the submission's process: honest code cannot avoid it, code that is hostile to it can. What stands
behind it is outside: page tables, undefined symbols of the rebuilt module, and files that are mapped executable.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

# Private in torch; without it the profiler sees this thread only.
_Config = getattr(torch._C._profiler, "_ExperimentalConfig", None)


class _Log(TorchDispatchMode):  # type: ignore[misc] # torch is not typed here
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))


def watched(run: Callable[[], list[Any]]) -> tuple[list[str], list[Any]]:
    """Names of the operators seen (`aten.mm.default` from the mode, `aten::mm` from the profiler) and what `run`
    returned.
    """
    options: dict[str, Any] = {}
    if _Config is not None:
        options["experimental_config"] = _Config(profile_all_threads=True)
    with profile(activities=[ProfilerActivity.CPU], **options) as record, _Log() as log:
        outputs = run()
    names = log.names | {event.name for event in record.events() if "::" in event.name}
    return sorted(names), outputs

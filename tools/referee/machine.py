"""What a verdict says about the machine: the processor, or the GPU with its driver, temperature and clocks."""

import os
import platform
import shutil
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import torch

QUERY: Final = (
    "uuid", "driver_version", "temperature.gpu", "clocks.sm", "clocks.mem", "power.draw", "utilization.gpu",
)  # fmt: skip
QUERY_LIMIT_S: Final = 5.0


def describe(target: str) -> dict[str, Any]:
    if target == "cuda":
        with suppress(Exception):  # no GPU, or one that has failed: the verdict says so already
            return _gpu()
    return {
        "kind": target,
        "name": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "capability": torch.backends.cpu.get_cpu_capability(),
    }


class Asked:
    """The description, found beside the judge's other work (nvidia-smi takes up to a second)."""

    def __init__(self, target: str) -> None:
        self._found: dict[str, Any] = {}
        self._thread = threading.Thread(target=lambda: self._found.update(describe(target)), daemon=True)
        self._thread.start()

    def result(self) -> dict[str, Any]:
        self._thread.join()
        return self._found


def _gpu() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    return {
        "kind": "cuda",
        "name": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        **gpu_state(),
    }


def gpu_state() -> dict[str, str]:
    """What nvidia-smi says about the first visible GPU; nothing where it cannot be asked."""
    program = shutil.which("nvidia-smi") or "/usr/bin/nvidia-smi"
    index = (os.environ.get("CUDA_VISIBLE_DEVICES") or "0").split(",")[0]
    command = [program, f"--id={index}", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"]
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=QUERY_LIMIT_S, check=True)
        values = done.stdout.strip().splitlines()[0].split(", ")
        return dict(zip((name.replace(".", "_") for name in QUERY), values, strict=True))
    return {}


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"

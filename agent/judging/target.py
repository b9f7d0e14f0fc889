"""Decides what `--target auto` means on this machine, and which targets this version can judge."""

from pathlib import Path
from typing import Final

from agent.config import JudgeConfig
from agent.judging.tool_runs import Target

NVIDIA_CONTROL: Final = Path("/dev/nvidiactl")
# Kernels for target cuda are built; reading their outputs from device memory is not part of this version.
JUDGED: Final = ("cpu",)


def resolve_target(config: JudgeConfig) -> Target:
    """cuda where there is an NVIDIA driver and it can be judged, else cpu; what was asked for is taken as it is."""
    if config.target != "auto":
        return config.target
    return "cuda" if "cuda" in JUDGED and NVIDIA_CONTROL.exists() else "cpu"

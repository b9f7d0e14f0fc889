"""Decides what `--target auto` means on this machine."""

from pathlib import Path
from typing import Final

from agent.config import JudgeConfig
from agent.judging.tool_runs import Target

NVIDIA_CONTROL: Final = Path("/dev/nvidiactl")


def resolve_target(config: JudgeConfig) -> Target:
    """cuda where there is an NVIDIA driver, else cpu; what was asked for is taken as it is."""
    if config.target != "auto":
        return config.target
    return "cuda" if NVIDIA_CONTROL.exists() else "cpu"

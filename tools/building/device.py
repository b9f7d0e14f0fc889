"""Which architecture kernels are compiled for: asked of the driver's management library, which starts no context."""

import contextlib
import ctypes
import os
import re
from typing import Final

# Devices whose own instructions (wgmma, setmaxnreg, tcgen05) need the architecture-specific target.
OWN_INSTRUCTIONS: Final = ("90", "100", "103", "120", "121")
LIBRARY: Final = "libnvidia-ml.so.1"
# Where a driver may lie that the loader was not told of.
FOLDERS: Final = ("", "/usr/local/nvidia/lib64/", "/opt/agent-driver/")


def compute_capability() -> str | None:
    """Of the GPU that CUDA would take first, such as 90; None where there is no driver or no GPU."""
    nvml = _library()
    if nvml is None or nvml.nvmlInit_v2() != 0:
        return None
    handle = ctypes.c_void_p()
    major, minor = ctypes.c_int(), ctypes.c_int()
    try:
        if _open(nvml, handle) != 0:
            return None
        if nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor)) != 0:
            return None
    finally:
        nvml.nvmlShutdown()
    return f"{major.value}{minor.value}"


def _library() -> ctypes.CDLL | None:
    for folder in FOLDERS:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(folder + LIBRARY)
    return None


def _open(nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> int:
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    if first.startswith(("GPU-", "MIG-")):
        return int(nvml.nvmlDeviceGetHandleByUUID(first.encode(), ctypes.byref(handle)))
    return int(nvml.nvmlDeviceGetHandleByIndex_v2(int(first) if first.isdigit() else 0, ctypes.byref(handle)))


def named_target(name: str) -> str | None:
    """sm_90, 9.0 or 90a as nvcc writes it (90, 90a); None where `name` is no architecture."""
    arch = name.removeprefix("sm_").replace(".", "")
    return arch if re.fullmatch(r"\d{2,3}[af]?", arch) else None


def own_target(capability: str) -> str:
    """The target for exactly this device: with its own instructions where it has any."""
    return capability + "a" if capability in OWN_INSTRUCTIONS else capability

"""What a child process with an environment of its own takes over from its parent's: which GPU is its own, where driver
and compiler are; and a name, because a container's uid has none and torch asks for one.
"""

import os
from typing import Final

PASSED_ON: Final = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME", "LD_LIBRARY_PATH", "NVIDIA_VISIBLE_DEVICES",
    "TRITON_LIBCUDA_PATH",
)  # fmt: skip
NAMED: Final = {"USER": "judge", "LOGNAME": "judge"}


def variables() -> dict[str, str]:
    """Those that are set here, and the name."""
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ} | NAMED

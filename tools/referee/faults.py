"""Errors that speak of the machine and not of anybody's code: the words of CUDA and torch for them, and whether the GPU
still answers.

Covers what a trusted process says, which is believed, and what the referee's own context sees. Words of a submission
are not believed: it could raise what it likes to get away without a verdict.
"""

import threading
from typing import Final

ANSWER_LIMIT_S: Final = 20.0
# As the CUDA runtime, the driver and torch put it; none of them can be had by what a task computes.
MACHINE: Final = (
    "no kernel image is available",
    "driver version is insufficient",
    "driver on your system is too old",
    "unsupported display driver",
    "unsupported toolchain",
    "forward compatibility was attempted",
    "Found no NVIDIA driver",
    "No CUDA GPUs are available",
    "no CUDA-capable device",
    "Torch not compiled with CUDA",
    "all CUDA-capable devices are busy or unavailable",
    "CUDA-capable device(s) is/are busy or unavailable",
    "GPU is lost",
    "fallen off the bus",
    "uncorrectable ECC",
    "uncorrectable NVLink",
    "system not yet initialized",
    "initialization error",
    "CUDA unknown error",
    "hardware stack error",
)


def of_machine(text: str) -> bool:
    """Whether a trusted process's error is the machine's."""
    return any(words in text for words in MACHINE)


def gpu_answers(limit_s: float = ANSWER_LIMIT_S) -> bool:
    """Whether the referee's own context still works: an error that a submission has made stays in the submission's."""
    told: list[bool] = []

    def ask() -> None:
        import torch  # late: whoever only reads errors must not wait for it

        try:
            told.append(float(torch.ones(8, device="cuda").sum().item()) == 8.0)
        except Exception as error:
            told.append("out of memory" in str(error))  # full, by whoever is being judged, but there

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(limit_s)
    return bool(told and told[0])

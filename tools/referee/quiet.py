"""Whether anything but the referee runs on the GPU: asked before every timed batch, when all workers are stopped.

Contexts of different processes take turns on a GPU, so that a kernel which is still running, whatever it waits for,
makes the referee's own tiny kernels wait for their turn. Covers a head start (a kernel that lies in wait for the
inputs), a kernel left behind to slow a baseline, other people's work on the device. Does not cover machines where
contexts share the GPU at once (MPS, MIG slices of one's own are fine).
"""

import time
from typing import Final

import torch

REPEATS: Final = 12
LIMIT_US: Final = 700.0  # measured on an H200: alone below 100, beside a running kernel above 1,500
PATIENCE_S: Final = 1.0


class Probe:
    """Tiny kernels, each waited for."""

    def __init__(self) -> None:
        self._cell = torch.zeros(1, device="cuda")
        self.longest_us: list[float] = []

    def is_quiet(self) -> bool:
        """Asks again for a while: what was launched in good faith comes to an end."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            longest = self._longest_us()
            if longest < LIMIT_US or time.monotonic() > deadline:
                self.longest_us.append(round(longest, 1))
                return longest < LIMIT_US

    def _longest_us(self) -> float:
        longest = 0.0
        for _ in range(REPEATS):
            started = time.perf_counter_ns()
            self._cell.add_(1.0)
            torch.cuda.synchronize()
            longest = max(longest, (time.perf_counter_ns() - started) / 1e3)
            if longest > 4 * LIMIT_US:
                break
        return longest

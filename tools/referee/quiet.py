"""Whether anything but the referee runs on the GPU: asked before every timed batch, when all workers are stopped.

Contexts of different processes take turns on a GPU, so that a kernel which is still running, whatever it waits for,
makes the referee's own tiny kernels wait for their turn. Covers a head start (a kernel that lies in wait for the
inputs), a kernel left behind to slow a baseline, other people's work on the device. Does not cover machines where
contexts share the GPU at once (MPS; MIG slices of one's own are fine), copies on engines of their own, other GPUs.
"""

import statistics
import time
from typing import Final

import torch

REPEATS: Final = 9
LIMIT_US: Final = 500.0  # measured on an H200: alone 15 to 30 (now and then 270), beside a running kernel 2,380
PATIENCE_S: Final = 1.0


class Probe:
    """Tiny kernels, each waited for. Their median counts: one may wait for a CPU."""

    def __init__(self) -> None:
        self._cell = torch.zeros(1, device="cuda")
        self.waits_us: list[float] = []

    def is_quiet(self) -> bool:
        """Asks again for a while: what was launched in good faith comes to an end."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            wait_us = self._median_us()
            if wait_us < LIMIT_US or time.monotonic() > deadline:
                self.waits_us.append(round(wait_us, 1))
                return wait_us < LIMIT_US

    def _median_us(self) -> float:
        waits = []
        for _ in range(REPEATS):
            started = time.perf_counter_ns()
            self._cell.add_(1.0)
            torch.cuda.synchronize()
            waits.append((time.perf_counter_ns() - started) / 1e3)
        return statistics.median(waits)

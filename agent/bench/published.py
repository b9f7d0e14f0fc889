"""What the CUDA-Agent paper reports for KernelBench (Table 1: 250 tasks, levels 1-3, on H20 GPUs, its own judge).

Figures of other judges and machines: they stand beside a suite's scores for orientation, not for comparison.
"""

from dataclasses import dataclass
from typing import Final

SOURCE: Final = "CUDA-Agent, Table 1"


@dataclass(frozen=True)
class Published:
    """Percentages of all tasks; geometric means over correct solutions."""

    passed: float
    faster_eager: float
    faster_compile: float
    geomean_eager: float
    geomean_compile: float


# Model -> overall, level 1, level 2, level 3.
TABLE: Final[dict[str, tuple[Published, Published, Published, Published]]] = {
    "Seed1.6": (
        Published(74.0, 43.6, 27.2, 0.95, 0.69),
        Published(90, 63, 51, 1.65, 1.25),
        Published(74, 40, 16, 0.68, 0.50),
        Published(42, 12, 2, 0.60, 0.40),
    ),
    "GLM 4.6": (
        Published(75.6, 44.8, 19.2, 0.78, 0.57),
        Published(86, 57, 32, 0.99, 0.73),
        Published(76, 43, 11, 0.60, 0.42),
        Published(54, 24, 10, 0.83, 0.62),
    ),
    "Kimi K2": (
        Published(66.8, 40.8, 22.8, 0.93, 0.66),
        Published(85, 56, 39, 1.43, 1.00),
        Published(65, 40, 15, 0.93, 0.65),
        Published(34, 12, 6, 0.40, 0.29),
    ),
    "Gemini 3 Pro": (
        Published(91.2, 87.6, 69.6, 1.92, 1.42),
        Published(95, 90, 72, 1.99, 1.51),
        Published(93, 91, 76, 2.03, 1.46),
        Published(80, 76, 52, 1.58, 1.17),
    ),
    "Claude Opus 4.5": (
        Published(95.2, 90.4, 66.4, 1.99, 1.46),
        Published(96, 88, 72, 2.03, 1.54),
        Published(98, 97, 69, 2.24, 1.60),
        Published(88, 82, 50, 1.52, 1.10),
    ),
    "CUDA Agent": (
        Published(98.8, 98.4, 96.8, 2.60, 2.11),
        Published(100, 99, 97, 2.48, 1.87),
        Published(100, 100, 100, 3.27, 2.80),
        Published(94, 94, 90, 1.80, 1.52),
    ),
}
LEVELS: Final = ("overall", "level1", "level2", "level3")

"""How quiet the machine is: CPU time that others used while a batch ran, from /proc/stat."""

import os
from dataclasses import dataclass
from pathlib import Path

QUIET_SHARE = 0.10
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Meter:
    """Busy time of all CPUs so far, in nanoseconds."""

    busy_ns: int

    @classmethod
    def now(cls) -> "Meter":
        fields = [int(text) for text in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        user, nice, system, _idle, _wait, interrupt, soft, steal = fields
        return cls(busy_ns=(user + nice + system + interrupt + soft + steal) * TICK_NS)

    def foreign_share(self, earlier: "Meter", *, own_ns: int, wall_ns: int, cores: int) -> float:
        """Share of the machine that was busy for others, within a tick's accuracy."""
        foreign = self.busy_ns - earlier.busy_ns - own_ns
        return max(0.0, foreign / (wall_ns * cores))

"""How quiet the machine was: the share of its CPUs that was busy for others while rounds ran, from /proc/stat.

Accurate to a scheduler tick a CPU, so for whole phases only; single batches are judged by how long their threads waited
for a CPU (see timing.py). What a hypervisor takes away (steal) counts as others'.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from referee import freeze
from referee.launch import Nursery

TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Meter:
    """Clock, busy time of all CPUs, and CPU time of the judge's own processes, in nanoseconds."""

    wall_ns: int
    busy_ns: int
    own_ns: int

    @classmethod
    def now(cls, nursery: Nursery) -> "Meter":
        fields = [int(text) for text in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        user, nice, system, _idle, _wait, interrupt, soft, steal = fields
        workers = sum(freeze.ran_ns(freeze.scheduled_ns(worker.pid)) for worker in nursery.workers if not worker.ended)
        return cls(
            wall_ns=time.monotonic_ns(),
            busy_ns=(user + nice + system + interrupt + soft + steal) * TICK_NS,
            own_ns=workers + time.process_time_ns(),
        )

    def foreign_share(self, later: "Meter") -> float:
        """Share of all CPUs that others used between the two readings."""
        foreign = (later.busy_ns - self.busy_ns) - (later.own_ns - self.own_ns)
        return max(0.0, foreign / ((later.wall_ns - self.wall_ns) * (os.cpu_count() or 1)))

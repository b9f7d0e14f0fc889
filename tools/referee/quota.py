"""CPU time that a control group allows in each period: how many threads fit it, and a pause that fills it up again.

A process that has used up the group's share makes all others in it wait for the next period: without a pause a
submission with many threads would slow whoever is timed after it.
"""

import math
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

GROUP: Final = Path("/sys/fs/cgroup")


def share(root: Path = GROUP) -> tuple[float, float] | None:
    """(CPUs, seconds of a period), None where nothing is limited or this sandbox does not show it."""
    with suppress(OSError, ValueError):
        quota, period = (root / "cpu.max").read_text().split()
        return None if quota == "max" else (int(quota) / int(period), int(period) / 1e6)
    for folder in (root / "cpu", root / "cpu,cpuacct"):
        with suppress(OSError, ValueError):
            quota_us = int((folder / "cpu.cfs_quota_us").read_text())
            period_us = int((folder / "cpu.cfs_period_us").read_text())
            return None if quota_us <= 0 else (quota_us / period_us, period_us / 1e6)
    return None


def threads(root: Path = GROUP) -> int:
    """CPUs that may be used at once."""
    allowed = len(os.sched_getaffinity(0))
    limited = share(root)
    return allowed if limited is None else max(1, min(allowed, math.ceil(limited[0])))


def pause(root: Path = GROUP) -> None:
    """Until a whole period's share is there again."""
    limited = share(root)
    if limited is not None:
        time.sleep(limited[1])

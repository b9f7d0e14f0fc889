"""Where a profiled forward spends its time on a GPU: kernels and distance to the memory's speed, from a ProfileReport.

Covers what the report's evidence holds: kernels as the profiler (CUPTI) saw them in one checked call, bytes that have
to move, the copy speed measured beside the timing. Not covered: why a kernel is slow; the action inspect says more.
"""

from dataclasses import dataclass
from typing import Any, Final

from agent.judging.reports import ProfileReport

ROWS: Final = 12
HOST_SHARE: Final = 0.3
"""From here on the time beside the kernels is worth a word."""


@dataclass(frozen=True)
class KernelRow:
    """One kernel in one forward."""

    name: str
    calls: int
    us: float
    share: float


@dataclass(frozen=True)
class Floor:
    """Inputs, state and outputs moved once at the speed of a copy; `left` is the median over that time."""

    bytes: int
    copy_bytes_per_s: float
    us: float
    left: float


@dataclass(frozen=True)
class DeviceTime:
    """`source` says where the kernels come from: CUPTI, or ptxas (resources only) where it recorded none."""

    source: str
    kernels: tuple[KernelRow, ...]
    kernel_us: float
    others: int
    host_us: float | None
    floor: Floor | None


def device_time(report: ProfileReport) -> DeviceTime | None:
    """None where the target is no GPU or nothing was timed."""
    if report.target != "cuda" or report.status != "profiled" or report.median_us is None:
        return None
    rows = _rows(report.evidence.get("kernels"))
    total = sum(row.us for row in rows)
    median = report.median_us.candidate
    host = median - total if rows and median - total > HOST_SHARE * median else None
    source = "CUPTI, one checked call" if rows else "ptxas"
    return DeviceTime(source, rows[:ROWS], total, max(0, len(rows) - ROWS), host, _floor(report.evidence, median))


def _rows(kernels: Any) -> tuple[KernelRow, ...]:
    found = [(str(name), int(calls), float(us)) for name, calls, us in kernels or ()]
    total = sum(us for _, _, us in found) or 1.0
    rows = [KernelRow(name, calls, us, us / total) for name, calls, us in found]
    return tuple(sorted(rows, key=lambda row: -row.us))


def _floor(evidence: dict[str, Any], median_us: float) -> Floor | None:
    timing = evidence.get("timing") or {}
    moved = int(timing.get("bytes_per_call") or 0) + int(evidence.get("state_bytes") or 0)
    copied = 2e9 * float(timing.get("copy_gb_per_s") or 0)  # a copy reads what it writes
    if not moved or not copied:
        return None
    us = moved / copied * 1e6
    return Floor(moved, copied, us, median_us / us)

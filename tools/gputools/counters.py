"""Hardware counters of a submission's kernels by ncu, summarised for whoever wrote them.

Covered: each kernel of one call after a warm-up, clocks left alone. Not covered: time as it is without a profiler; ncu
runs a kernel several times, with caches flushed before each.
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from gputools import programs

LIMIT_S: Final = 180.0
MOST: Final = 12
BASIC: Final = {
    "gpu__time_duration.sum": "time_ns",
    "dram__bytes.sum": "dram_bytes",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram_pct",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "sm_pct",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy_pct",
    "lts__t_sector_hit_rate.pct": "l2_hit_pct",
    "launch__registers_per_thread": "registers",
}
ARITHMETIC: Final = {
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": "ffma",
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum": "fadd",
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum": "fmul",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": "bank_conflicts",
}
STALLS: Final = (
    "long_scoreboard",
    "short_scoreboard",
    "barrier",
    "math_pipe_throttle",
    "lg_throttle",
    "mio_throttle",
    "wait",
    "not_selected",
)
# Asked for base units ncu writes ns and byte; these are the words of its versions.
UNITS: Final = {
    "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9,
    "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12,
}  # fmt: skip
DENIED: Final = "ERR_NVGPUCTRPERM"
TRIES: Final = 3
_NO_METRIC: Final = "Failed to find metric"
STALL_METRIC: Final = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


class NoCounters(Exception):
    """ncu is missing, may not read counters, or gave none; the text says which."""


def collect(argv: Sequence[str], *, scratch: Path) -> list[dict[str, Any]]:
    """Runs `argv` under ncu, which looks at what lies between the profiler's start and stop. Raises NoCounters."""
    ncu = programs.find("ncu")
    if ncu is None:
        raise NoCounters("ncu (Nsight Compute) is not installed")
    metrics = {**BASIC, **ARITHMETIC, **{STALL_METRIC.format(name): f"stall:{name}" for name in STALLS}}
    command = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"]
    command += ["--profile-from-start", "off", "--launch-count", str(MOST)]
    environment = {"HOME": str(scratch), "TMPDIR": str(scratch), "LC_ALL": "C"}
    for number in range(TRIES):
        ran = programs.run([*command, "--metrics", ",".join(metrics), *argv], timeout_s=LIMIT_S, env=environment)
        if DENIED in ran.said:
            raise NoCounters("ncu may not read the counters here (the host restricts them to administrators)")
        if rows := parse(ran.out, metrics):
            return rows
        metrics = without(metrics, ran.said)
        if number:
            metrics = {metric: short for metric, short in metrics.items() if metric in BASIC}
        if ran.code is None or not metrics:
            break
    raise NoCounters(f"ncu gave no counters: {trouble(ran)}")


def without(metrics: dict[str, str], said: str) -> dict[str, str]:
    """The metrics that are left where ncu says that it does not know one; empty where it failed for another reason."""
    unknown = {metric for metric in metrics for line in _told(said) if _NO_METRIC in line and _names(line, metric)}
    return {metric: short for metric, short in metrics.items() if metric not in unknown} if unknown else {}


def _names(line: str, metric: str) -> bool:
    """ncu quotes the metric, or a pattern that begins with its name before the first dot."""
    return metric in line or f"^{metric.split('.')[0]}" in line


def trouble(ran: programs.Ran) -> str:
    """ncu's own words on why there is nothing."""
    if ran.code is None:
        return f"it took longer than {LIMIT_S:.0f} s"
    lines = _told(ran.said)
    for mark in ("==ERROR==", "==WARNING=="):
        if found := [line.removeprefix(mark).strip() for line in lines if line.startswith(mark)]:
            return " ".join(found)[:300]
    return f"exit code {ran.code}"


def _told(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith("==")]


def parse(text: str, metrics: dict[str, str]) -> list[dict[str, Any]]:
    """One row a kernel, from either form that ncu has: a column a metric (page raw; the line after the header holds the
    units) or a line a metric (page details). Times in ns, sizes in bytes. What is no number is left out.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]  # the program's own lines may stand between
    start = next((index for index, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    table = list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))
    kernels = [cells for cells in table if (cells.get("ID") or "").strip().isdigit()]
    if "Metric Name" in (table[0] if table else {}):
        found = [_row(cells, values, metrics) for cells, values in _by_kernel(kernels)]
    else:
        units = next((cells for cells in table if cells not in kernels), {})
        found = [_row(cells, {name: _scaled(cells.get(name), units.get(name)) for name in metrics}, metrics)
                 for cells in kernels]  # fmt: skip
    return [row for row in found if set(metrics.values()) & row.keys() or "stalls" in row]


def _by_kernel(lines: list[dict[str, str]]) -> list[tuple[dict[str, str], dict[str, float | None]]]:
    kernels: dict[str, tuple[dict[str, str], dict[str, float | None]]] = {}
    for cells in lines:
        _, values = kernels.setdefault(cells["ID"], (cells, {}))
        values[cells.get("Metric Name") or ""] = _scaled(cells.get("Metric Value"), cells.get("Metric Unit"))
    return list(kernels.values())


def _row(cells: dict[str, str], values: dict[str, float | None], metrics: dict[str, str]) -> dict[str, Any]:
    row: dict[str, Any] = {"name": (cells.get("Kernel Name") or "")[:200]}
    row |= {"grid": cells.get("Grid Size", ""), "block": cells.get("Block Size", "")}
    stalls: dict[str, float] = {}
    for metric, short in metrics.items():
        number = values.get(metric)
        if number is None:
            continue
        if short.startswith("stall:"):
            stalls[short.removeprefix("stall:")] = number
        else:
            row[short] = number
    if stalls:
        row["stalls"] = dict(sorted(stalls.items(), key=lambda item: -item[1])[:3])
    if "ffma" in row and row.get("time_ns"):
        row["flop_per_s"] = (2 * row["ffma"] + row.get("fadd", 0) + row.get("fmul", 0)) / (row["time_ns"] / 1e9)
    return row


def _scaled(text: str | None, unit: str | None) -> float | None:
    """In base units; thousands may be set apart."""
    try:
        return float((text or "").replace(",", "")) * UNITS.get((unit or "").strip(), 1.0)
    except ValueError:
        return None

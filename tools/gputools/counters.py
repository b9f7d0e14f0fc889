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
STALL_METRIC: Final = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


class NoCounters(Exception):
    """ncu is missing, may not read counters, or gave none; the text says which."""


def collect(argv: Sequence[str], *, scratch: Path) -> list[dict[str, Any]]:
    """Runs `argv` under ncu, which looks at what lies between the profiler's start and stop. Raises NoCounters."""
    ncu = programs.find("ncu")
    if ncu is None:
        raise NoCounters("ncu (Nsight Compute) is not installed")
    everything = {**BASIC, **ARITHMETIC, **{STALL_METRIC.format(name): f"stall:{name}" for name in STALLS}}
    said = ""
    for metrics in (everything, {**BASIC, **ARITHMETIC}, BASIC):  # a metric that this ncu does not know fails all
        command = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"]
        command += ["--profile-from-start", "off", "--launch-count", str(MOST), "--metrics", ",".join(metrics)]
        environment = {"HOME": str(scratch), "TMPDIR": str(scratch)}
        ran = programs.run([*command, *argv], timeout_s=LIMIT_S, env=environment)
        if "ERR_NVGPUCTRPERM" in ran.said:
            raise NoCounters("ncu may not read the counters here (the host restricts them to administrators)")
        rows = parse(ran.out, metrics)
        if rows:
            return rows
        said = " ".join(line for line in ran.said.splitlines() if "ERROR" in line)[:300] or f"exit code {ran.code}"
        if ran.code is None:
            break
    raise NoCounters(f"ncu gave no counters: {said}")


def parse(text: str, metrics: dict[str, str]) -> list[dict[str, Any]]:
    """The rows behind the header; the line after it holds units. What is no number is left out."""
    lines = text.splitlines()
    start = next((index for index, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    table = list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))
    return [_row(cells, metrics) for cells in table if (cells.get("ID") or "").strip().isdigit()]


def _row(cells: dict[str, str], metrics: dict[str, str]) -> dict[str, Any]:
    row: dict[str, Any] = {"name": (cells.get("Kernel Name") or "")[:200]}
    row |= {"grid": cells.get("Grid Size", ""), "block": cells.get("Block Size", "")}
    stalls: dict[str, float] = {}
    for metric, short in metrics.items():
        number = _number(cells.get(metric) or "")
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


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None

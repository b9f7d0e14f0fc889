"""Times a set's tasks one after another: `python -I time_tasks.py --target cpu|cuda < TASKS.jsonl > TASKS.times.jsonl`.

Rows need `code`; `task_id` and `sha256` are handed through. Standard output: one row of times per task, as it is known;
standard error: a table. All in this process, one task at a time, so that nothing else of this set runs meanwhile: for
sets that were examined before, not for texts that nobody knows.
"""

import argparse
import gc
import hashlib
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from referee import loading, tree
from referee.launch import HEAP, SPIN

SEED: Final = 20260101
CALLS: Final = 15
ENOUGH_S: Final = 0.4
SAME: Final = 1e-3
LOW_MS, HIGH_MS = 1.0, 100.0
Row = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description="Time tasks (JSON lines on stdin) in eager mode and compiled.")
    parser.add_argument("--target", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--no-compile", action="store_true", help="eager times only")
    parser.add_argument("--budget-s", type=float, default=0.0, help="stop after this time; what was timed is written")
    parser.add_argument("--skip", type=Path, metavar="FILE", help="times of an earlier call: leave out what is in it")
    flags = parser.parse_args()
    if flags.target == "cpu" and not HEAP.items() <= os.environ.items():  # read when a process starts
        os.execve(sys.executable, [sys.executable, "-I", *sys.argv], {**os.environ, **HEAP, **SPIN})
    if flags.target == "cuda" and not torch.cuda.is_available():
        sys.stderr.write("time_tasks: torch sees no GPU here\n")
        return 3
    warnings.simplefilter("ignore")
    torch.set_grad_enabled(False)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    started, rows = time.monotonic(), []
    for row in _rows(flags.skip):
        if flags.budget_s and time.monotonic() - started > flags.budget_s:
            sys.stderr.write(f"stopped after {flags.budget_s:g} s\n")
            break
        timed = _timed(row, flags.target, compiled=not flags.no_compile)
        rows.append(timed)
        out.write(json.dumps(timed) + "\n")
        out.flush()
        sys.stderr.write(_line(timed))
    sys.stderr.write(_summary(rows))
    return 0


def _rows(skip: Path | None) -> Iterator[Row]:
    known = {json.loads(line)["sha256"] for line in skip.read_text().splitlines()} if skip else set()
    for line in sys.stdin:
        if line.strip():
            row = json.loads(line)
            row["sha256"] = hashlib.sha256(row["code"].encode()).hexdigest()
            if row["sha256"] not in known:
                yield row


def _timed(row: Row, target: str, *, compiled: bool) -> Row:
    """Times in milliseconds, or the error; a task that fails does not end the others."""
    made: Row = {
        "task_id": row.get("task_id", ""),
        "sha256": row["sha256"],
        "how": "one after another",
        **_where(target),
    }
    try:
        made |= _measured(row["code"], target, compiled=compiled)
    except Exception as error:
        made["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    gc.collect()
    torch._dynamo.reset()
    if target == "cuda":
        torch.cuda.empty_cache()
    return made


def _where(target: str) -> Row:
    name = torch.cuda.get_device_name() if target == "cuda" else f"{len(os.sched_getaffinity(0))} cores"
    return {"device": name, "torch": torch.__version__}


def _measured(code: str, target: str, *, compiled: bool) -> Row:
    task = loading.load_task(code, device=target)
    model = task.build(seed=SEED)
    inputs = task.inputs(seed=SEED)
    if target == "cuda":
        torch.cuda.reset_peak_memory_stats()
    want = list(tree.leaves_of(model(*inputs)))
    times = _repeated(lambda: model(*inputs), target)
    found: Row = {"eager_ms": _short(statistics.median(times)), "eager_min_ms": _short(min(times))}
    if target == "cuda":
        found["peak_bytes"] = torch.cuda.max_memory_allocated()
    if compiled:
        call = torch.compile(model)
        got = list(tree.leaves_of(call(*inputs)))
        found["equal"] = all(_close(one, other) for one, other in zip(got, want, strict=True))
        times = _repeated(lambda: call(*inputs), target)
        found |= {"compile_ms": _short(statistics.median(times)), "compile_min_ms": _short(min(times))}
    return found


def _repeated(call: Callable[[], Any], target: str) -> list[float]:
    for _ in range(2):
        call()
    times: list[float] = []
    until = time.monotonic() + ENOUGH_S
    while len(times) < 3 or (len(times) < CALLS and time.monotonic() < until):
        _settle(target)
        started = time.perf_counter()
        call()
        _settle(target)
        times.append((time.perf_counter() - started) * 1e3)
    return times


def _settle(target: str) -> None:
    if target == "cuda":
        torch.cuda.synchronize()


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return bool(torch.equal(one, other))
    scale = float(other.double().square().mean().sqrt()) if other.numel() else 0.0
    return float((one - other).abs().max()) <= SAME * max(scale, 1e-12) * 10 if other.numel() else True


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _in_band(row: Row) -> bool:
    return "eager_ms" in row and LOW_MS <= row["eager_ms"] <= HIGH_MS


def _line(row: Row) -> str:
    if "error" in row:
        return f"{row['task_id']:48}  {row['error'][:120]}\n"
    compiled = f"{row['compile_ms']:10.3f}" if "compile_ms" in row else f"{'-':>10}"
    remark = "" if _in_band(row) else "  out of band"
    remark += "" if row.get("equal", True) else "  differs"
    return f"{row['task_id']:48}{row['eager_ms']:10.3f}{compiled}{remark}\n"


def _summary(rows: list[Row]) -> str:
    good = sum(map(_in_band, rows))
    broken = sum("error" in row for row in rows)
    return (
        f"{len(rows)} tasks: {good} in {LOW_MS:g} to {HIGH_MS:g} ms, {len(rows) - good - broken} not, {broken} failed\n"
    )


if __name__ == "__main__":
    sys.exit(main())

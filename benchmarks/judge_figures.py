"""What the judge's own figures are: `python benchmarks/judge_figures.py [--target cpu|cuda] [--runs 40]`.

A submission that is the reference itself is judged again and again with cached baselines: how often the verdict says
`inconclusive`, how far the ratio is from one, what share of a timed batch the protocol takes, how many seconds a
judgement takes beyond its timed batches, how large a verdict is. Covers tools/judge.py as the sandbox starts it, with
no sandbox around it. Does not cover a kernel's build: the submission has none.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TASKS = {
    "cpu": ("torch.randn(768, 1024)", 1024),
    "cuda": ("torch.randn(8192, 4096)", 4096),
}
MODULE = """
import torch
from torch import nn


class {name}(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter({gain})

    def forward(self, x):
        y = x * self.gain
        return y / torch.sqrt(1.0 + y * y)
"""
INPUTS = """

def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [{width}]
"""


def task(target: str) -> str:
    inputs, width = TASKS[target]
    return MODULE.format(name="Model", gain="torch.rand(width) + 0.5") + INPUTS.format(inputs=inputs, width=width)


def tool(program: str, text: str, *flags: str) -> bytes:
    command = [sys.executable, "-I", str(ROOT / program), *flags]
    done = subprocess.run(command, input=json.dumps({"model_py": text}).encode(), capture_output=True)
    if done.returncode:
        sys.exit(done.stderr.decode("utf-8", "replace")[-2000:])
    return done.stdout


def judged(target: str, folder: Path, *, budget_s: float | None, measures: int) -> list[dict[str, Any]]:
    """One judgement, `measures` times timed: what each found, and what all took on this process's clock."""
    started = time.monotonic()
    flags = ["--workspace", str(folder / "work"), "--cache", str(folder / "cache")]
    flags += [] if budget_s is None else ["--budget-s", str(budget_s)]
    again = (str(measures), str(folder / "rows.json"))
    told = tool("benchmarks/measured_again.py", task(target), *again, "--target", target, "--policy", "open", *flags)
    seconds = (time.monotonic() - started) / measures
    verdict = json.loads(told)
    if verdict["verdict"] != "accepted":
        sys.exit(f"the reference itself was not accepted: {verdict['reasons']}")
    return [figures(row, seconds, len(told)) for row in json.loads((folder / "rows.json").read_text())]


def figures(timing: dict[str, Any], seconds: float, verdict_bytes: int) -> dict[str, Any]:
    batches_s = sum(us for side in timing["rounds_us"].values() for us in side) * timing["calls_per_batch"] / 1e6
    batch_us = statistics.median(timing["rounds_us"]["eager"]) * timing["calls_per_batch"]
    protocol_us = timing["protocol_us"] or timing["empty_window_us"]
    return {
        **timing["eager"],
        "seconds": seconds,
        "beyond_s": seconds - batches_s,
        "protocol_share": protocol_us / batch_us,
        "bytes": verdict_bytes,
        "rounds": len(timing["rounds_us"]["eager"]),
        "quiet": timing["quiet"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--measures", type=int, default=1, help="times that each run times (see measured_again.py)")
    parser.add_argument("--budget-s", type=float, help="aim for the timed rounds (default: the judge's own)")
    parser.add_argument("--json", type=Path, help="write every run to this file")
    flags = parser.parse_args()
    runs = []
    with tempfile.TemporaryDirectory(prefix="judge-figures-") as scratch:
        folder = Path(scratch)
        (folder / "work").mkdir()
        (folder / "work" / "model_new.py").write_text(MODULE.format(name="ModelNew", gain="torch.empty(width)"))
        tool("tools/warm_cache.py", task(flags.target), "--out", str(folder / "cache"), "--target", flags.target)
        print(f"{time.strftime('%Y-%m-%d')}, {platform.machine()}, {len(os.sched_getaffinity(0))} CPUs, {flags.target}")
        print(
            f"{'run':>4} {'eager / itself':>24} {'call':12} {'rounds':>6} {'quiet':5} {'s':>6} {'beyond':>6}",
            flush=True,
        )
        for number in range(1, flags.runs + 1):
            for run in judged(flags.target, folder, budget_s=flags.budget_s, measures=flags.measures):
                runs.append(run)
                interval = f"{run['ratio']:.4f} ({run['low']:.3f}-{run['high']:.3f})"
                left = f"{number:4} {interval:>24} {run['call']:12} {run['rounds']:6} {run['quiet']!s:5}"
                print(f"{left} {run['seconds']:6.1f} {run['beyond_s']:6.1f}", flush=True)
    if flags.json is not None:
        flags.json.write_text(json.dumps(runs))
    report(runs, aim=0.01 if flags.target == "cuda" else 0.05)
    return 0


def report(runs: list[dict[str, Any]], *, aim: float) -> None:
    inconclusive = sum(run["call"] == "inconclusive" for run in runs)
    within = sum(abs(run["ratio"] - 1) <= aim for run in runs)
    furthest = max(abs(run["ratio"] - 1) for run in runs)
    print(f"inconclusive: {inconclusive} of {len(runs)} (aim: 95 %)")
    print(f"ratio within {aim:.0%} of one: {within} of {len(runs)}; furthest {furthest:.2%}")
    shares = [run["protocol_share"] for run in runs]
    print(f"protocol's share of a batch: median {statistics.median(shares):.3%}, most {max(shares):.3%} (aim: 1 %)")
    beyond = [run["beyond_s"] for run in runs]
    print(f"seconds beyond the timed batches: median {statistics.median(beyond):.1f}, most {max(beyond):.1f} (aim: 20)")
    print(f"verdict with evidence: at most {max(run['bytes'] for run in runs)} bytes (aim: 1 MB)")


if __name__ == "__main__":
    sys.exit(main())

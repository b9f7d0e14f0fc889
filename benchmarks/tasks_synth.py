"""How many composed candidates survive (aim: 30 %), how many a minute pass through the filters (aim: 60 on two cores),
what that costs in CPU time, which says more on a busy machine, how far the set is from the mix that was asked for, and
whether the same seed gives the same file when the synthesis is killed on its way and goes on with another number of
lanes.

`python benchmarks/tasks_synth.py [--count 50] [--seed 1] [--kernelbench CHECKOUT] [--kill-after 60]`; for the mix alone
`--count 1000 --once`.
"""

import argparse
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agent.tasks.synthesis.mix import PAPER

ROOT: Final = Path(__file__).resolve().parents[1]
SURVIVING, A_MINUTE, POINTS = 0.30, 60.0, 1.0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kernelbench", type=Path)
    parser.add_argument("--once", action="store_true", help="no second run")
    parser.add_argument("--kill-after", type=float, default=60.0, help="seconds until the second run is killed")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="tasks-synth-") as folder:
        first, second = Path(folder) / "one" / "set.jsonl", Path(folder) / "two" / "set.jsonl"
        started = time.monotonic()
        funnel = run(first, options)
        minutes = (time.monotonic() - started) / 60
        journal = (first.parent / "set.jsonl.journal.jsonl").read_text(encoding="utf-8").splitlines()
        reports = [json.loads(line)["report"] for line in journal[1:]]
        print_results(funnel, reports, minutes=minutes)
        if options.once:
            return 0
        killed = kill(second, options)
        run(second, options, "--lanes", "1")
        same = digest(first) == digest(second)
    print(f"the same file from the same seed: {'yes' if same else 'NO'} ({killed}; then one lane)")
    return 0 if same else 1


def command(path: Path, options: argparse.Namespace, *more: str) -> list[str]:
    argv = [sys.executable, "-m", "agent", "tasks", "synth", "-o", str(path), "--count", str(options.count)]
    argv += ["--seed", str(options.seed), "--target", "cpu", "--sandbox", "bubblewrap", "--json", *more]
    return [*argv, "--kernelbench", str(options.kernelbench)] if options.kernelbench else argv


def run(path: Path, options: argparse.Namespace, *more: str) -> dict[str, Any]:
    done = subprocess.run(command(path, options, *more), cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    funnel: dict[str, Any] = json.loads(done.stdout)
    return funnel


def kill(path: Path, options: argparse.Namespace) -> str:
    """Starts a synthesis and kills it; what it had by then."""
    process = subprocess.Popen(
        command(path, options), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        process.wait(options.kill_after)
        return "it had ended before it could be killed"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    journal = path.with_name("set.jsonl.journal.jsonl")
    lines = len(journal.read_bytes().splitlines()) - 1 if journal.exists() else 0
    return f"killed after {options.kill_after:g} s with {max(lines, 0)} reports"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def print_results(funnel: dict[str, Any], reports: Sequence[dict[str, Any]], *, minutes: float) -> None:
    kept, composed = funnel["kept"], funnel["composed"]
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, torch {funnel['versions'].get('torch')}"
    )
    print(f"survive all filters: {kept} of {composed} = {kept / composed:.1%} (aim {SURVIVING:.0%})")
    rate = f"{len(reports) / minutes:.0f} (aim {A_MINUTE:.0f}), start included"
    print(f"candidates a minute through the filters: {rate}")
    spent = [report["facts"]["cpu_seconds"] for report in reports if "cpu_seconds" in report["facts"]]
    print(f"CPU seconds a candidate: {sum(spent) / max(1, len(spent)):.2f}, start not included")
    stages = Counter[str]()
    for report in reports:
        stages.update(report["facts"].get("stage_cpu_seconds", {}))
    print("  " + ", ".join(f"{name} {value / len(reports):.2f}" for name, value in stages.most_common(6)))
    worst = max(abs(100 * kind["kept"] / kept - PAPER[name]) for name, kind in funnel["kinds"].items())
    print(f"largest distance from the mix: {worst:.2f} percentage points (aim {POINTS:g} in a set of 1,000)")
    for stage, number in funnel["dropped"].items():
        print(f"  {stage}: {number}")


if __name__ == "__main__":
    sys.exit(main())

"""Measures what a sandbox costs: start, a command in a running sandbox, a file written and read, close.

usage: python benchmarks/sandbox_latency.py [--kind docker|bubblewrap|none|all] [--repeat N]
Prints medians and the 90th percentile in milliseconds beside the targets. Wall clock of this process, cold caches
excluded: one sandbox is opened and closed before anything is measured.
"""

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agent.config import SandboxConfig
from agent.errors import AgentError
from agent.sandbox.base import Sandbox, SandboxSpec
from agent.sandbox.open import open_sandbox

KINDS = ("docker", "bubblewrap", "none")
TARGETS_MS = {
    ("docker", "start"): 1000.0,
    ("docker", "true"): 60.0,
    ("bubblewrap", "start"): 100.0,
    ("bubblewrap", "true"): 15.0,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=(*KINDS, "all"), default="all")
    parser.add_argument("--repeat", type=int, default=30)
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {options.repeat} repetitions")
    print(f"{'kind':<12}{'step':<14}{'median ms':>11}{'p90 ms':>9}{'target ms':>11}")
    missed = False
    for kind in KINDS if options.kind == "all" else (options.kind,):
        try:
            missed |= report(kind, measure(kind, options.repeat))
        except AgentError as error:
            print(f"{kind:<12}not measured: {error}")
    return 1 if missed else 0


def measure(kind: str, repeat: int) -> dict[str, list[float]]:
    """Milliseconds of each step, one entry a repetition."""
    with tempfile.TemporaryDirectory() as folder:
        start(kind, Path(folder)).close()
        times: dict[str, list[float]] = {"start": [], "close": []}
        for _ in range(max(3, repeat // 3)):
            opened: list[Sandbox] = []
            times["start"].append(clock(lambda into=opened: into.append(start(kind, Path(folder)))))
            times["close"].append(clock(opened[0].close))
        sandbox = start(kind, Path(folder))
        try:
            for name, step in steps(sandbox):
                times[name] = [clock(step) for _ in range(repeat)]
        finally:
            sandbox.close()
    return times


def steps(sandbox: Sandbox) -> list[tuple[str, Callable[[], object]]]:
    return [
        ("true", lambda: sandbox.exec(["true"], timeout_s=10)),
        ("bash -lc true", lambda: sandbox.exec(["bash", "-lc", "true"], timeout_s=10)),
        ("write 100 kB", lambda: sandbox.write("file.bin", b"x" * 100_000)),
        ("read 100 kB", lambda: sandbox.read("file.bin", limit=100_000)),
    ]


def start(kind: str, workspace: Path) -> Sandbox:
    return open_sandbox(SandboxConfig(i_understand=True), SandboxSpec(workspace=workspace), kind=kind)


def clock(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1000


def report(kind: str, times: dict[str, list[float]]) -> bool:
    """Print the rows of one kind; True when a target was missed."""
    missed = False
    for step, values in times.items():
        median = statistics.median(values)
        target = TARGETS_MS.get((kind, step))
        missed |= target is not None and median > target
        p90 = sorted(values)[int(len(values) * 0.9)]
        print(f"{kind:<12}{step:<14}{median:>11.1f}{p90:>9.1f}{target or '':>11}")
    return missed


if __name__ == "__main__":
    sys.exit(main())

"""Measures what the harness costs per turn while many episodes of one collection run at once, and its memory.

usage: python benchmarks/collect_load.py [--kind bubblewrap|docker] [--episodes N] [--turns N] [--pace-s S]
A real `agent collect`: replayed bash turns, real sandboxes, fsynced logs, checkpoints, the local executor with one
worker per episode. Each command sleeps for 0.5 to 1.5 times --pace-s (a model's answer and its commands take longer;
equal pauses would make all episodes ask in one moment) and prints --output-bytes. Own time of a turn = from one reply's
record to the next, less the time the sandbox reports for the command; it is read from the logs afterwards. Pace 0 is a
closed loop that saturates all cores: the wall time then is a queue's, so CPU time per turn is printed beside it. Exit
code 1 where a target is missed.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agent.batch.collect import CollectRequest, run_collect
from agent.trajectory.events import ObservationEvent, ReplyEvent, RunStart, StopEvent
from agent.trajectory.reader import read_events
from agent.trajectory.stored import find_runs

TARGET_MS = 20.0
MODEL = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2.0 + 1.0


def get_inputs():
    return [torch.rand(64, 64)]


def get_init_inputs():
    return []
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=("bubblewrap", "docker"), default="bubblewrap")
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--pace-s", type=float, default=3.0)
    parser.add_argument("--output-bytes", type=int, default=20_000)

    options = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="collect-load-") as scratch:
        folder = Path(scratch)
        write_inputs(folder, options)
        lowest = LowestMemory()
        before, cpu_before, began = lowest.now_mb(), time.process_time(), time.monotonic()
        with lowest:
            code = run_collect(
                CollectRequest(
                    tasks=str(folder / "tasks.jsonl"),
                    output=folder / "collection",
                    workers=options.episodes,
                    settings=("limits.turns=0", "limits.time_s=0", "limits.repeats=1000"),
                    flags={"backend.script": str(folder / "turns.md"), "sandbox.kind": options.kind},
                    plain=True,
                )
            )
        # Not os.times(): its ticks fall together with timers, and a thread that only wakes up is charged whole ones.
        wall_s, own_cpu_s = time.monotonic() - began, time.process_time() - cpu_before
        good = report(folder / "collection", options, wall_s=wall_s, cpu_s=own_cpu_s)
    print(f"memory of the machine taken at the peak: {before - lowest.mb:.0f} MB")
    return 0 if good and code == 0 else 1


def write_inputs(folder: Path, options: argparse.Namespace) -> None:
    rows = ({"id": f"task-{i:03}", "code": MODEL} for i in range(options.episodes))
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    # RANDOM is uniform in 0…32767: from half of the pace to one and a half.
    pause = f"sleep $(( (RANDOM + 16384) * {int(1000 * options.pace_s)} / 32768 ))e-3;" if options.pace_s else ""
    turns = [
        f"## Turn {n}\n\n```action bash\n{pause} echo {n}; "
        f"yes 'a line of output, one of many' | head -c {options.output_bytes}\n```\n"
        for n in range(1, options.turns + 1)
    ]
    head = "---\nauthor: hand-written\ntarget: cpu\ntask: model.py\n---\n\n"
    (folder / "turns.md").write_text(head + "\n".join(turns), encoding="utf-8")


class LowestMemory:
    """The least memory that was available while the block ran, in MB; asked four times a second."""

    def __init__(self) -> None:
        self.mb = self.now_mb()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def now_mb(self) -> float:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        return next(int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("MemAvailable"))

    def __enter__(self) -> "LowestMemory":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.25):
            self.mb = min(self.mb, self.now_mb())


def report(collection: Path, options: argparse.Namespace, *, wall_s: float, cpu_s: float) -> bool:
    own_ms: list[float] = []
    spans: list[tuple[float, float]] = []
    turns = 0
    for folder in find_runs([collection]):
        last, spent_s, began, ended = 0.0, 0.0, 0.0, 0.0
        for event in read_events(folder.events):
            if isinstance(event, RunStart):
                began = event.t
            elif isinstance(event, ObservationEvent):
                spent_s += event.duration_s
            elif isinstance(event, StopEvent):
                ended = event.t
            elif isinstance(event, ReplyEvent):
                turns += 1
                if last:
                    own_ms.append(1000 * (event.t - last - spent_s))
                last, spent_s = event.t, 0.0
        spans.append((began, ended))
    most = max(sum(began <= moment < ended for began, ended in spans) for moment, _ in spans)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    own_ms.sort()
    print(
        f"\n{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"{options.kind}, commit {commit()}"
    )
    print(f"{len(spans)} episodes, {most} at once, {turns} turns in {wall_s:.0f} s, pace {options.pace_s:g} s")
    median, p95 = statistics.median(own_ms), own_ms[int(0.95 * len(own_ms))]
    print(
        f"own time per turn, ms: median {median:.1f} (target {TARGET_MS:g}), "
        f"95th percentile {p95:.1f}, most {own_ms[-1]:.0f}"
    )
    print(f"own CPU time per turn, whole command: {1000 * cpu_s / turns:.1f} ms")
    print(f"peak memory of the driver: {peak_mb:.0f} MB, {peak_mb / len(spans):.1f} MB per episode")
    return most >= options.episodes and (median <= TARGET_MS or options.pace_s == 0)


def commit() -> str:
    done = subprocess.run(("git", "rev-parse", "--short", "HEAD"), capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())

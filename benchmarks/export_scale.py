"""Measures `agent export` over many stored runs: seconds and memory, beside the targets.

usage: python benchmarks/export_scale.py [--runs 10000] [--formats trl-sft,openai,…] [--as jsonl|parquet] [--jobs N]
The runs are those of examples/ under other names: each gets its own run id and one of RUNS / 4 tasks, so that every
task has four. The export is the real command in its own process. Memory is the sum over that process and its workers
of their shares (PSS), sampled; CPU seconds are those of all of them, which other programs disturb less. Exit code 1
where a target is missed.
"""

import argparse
import json
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agent.tasks.task import text_sha256

ROOT = Path(__file__).resolve().parents[1]
TARGET_S = 60.0
TARGET_MB = 500.0
SAMPLES = 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--formats", default="trl-sft")
    parser.add_argument("--as", dest="layout", default="")
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--extra", default="", help="further options of agent export, separated by spaces")
    parser.add_argument("--at", type=Path, help="folder for runs and exports; runs that are there are used again")
    options = parser.parse_args()
    place = options.at or Path(tempfile.mkdtemp(prefix="export-scale-"))
    try:
        began = time.monotonic()
        size = make_runs(place / "runs", options.runs)
        print(f"{options.runs} runs, {size / 1e6:.0f} MB of events, made in {time.monotonic() - began:.1f} s")
        print(f"{platform.machine()}, {psutil.cpu_count()} cores, Python {platform.python_version()}")
        results = [measure(place, name, options) for name in options.formats.split(",")]
    finally:
        if options.at is None:
            shutil.rmtree(place, ignore_errors=True)
    return 0 if all(results) else 1


def make_runs(folder: Path, count: int) -> int:
    """Runs like those of the examples. Returns the bytes of their logs."""
    models = sorted((ROOT / "examples").glob("*/run"))
    parts = [Model(path) for path in models]
    size = 0
    for number in range(count):
        size += parts[number % len(parts)].write(folder, number, task=number // SAMPLES)
    return size


class Model:
    """One recorded run, to be written again under other names."""

    def __init__(self, path: Path) -> None:
        first, self.rest = (path / "events.jsonl").read_bytes().split(b"\n", 1)
        self.first: dict[str, Any] = json.loads(first)
        self.task: dict[str, Any] = json.loads((path / "task.json").read_bytes())
        self.verdict = (path / "verdict.json").read_bytes()
        self.config = (path / "config.json").read_bytes()

    def write(self, folder: Path, number: int, *, task: int) -> int:
        text = self.task["text"] + f"\n# variant {task}\n"
        sha256 = text_sha256(text)
        run_id = f"2026-11-30T1200-{self.task['id']}-{number:08x}"
        place = folder / "tasks" / f"{self.task['id']}-{sha256[:8]}" / str(number % SAMPLES) / run_id
        events = place / "events.jsonl"
        if events.exists():
            return events.stat().st_size
        place.mkdir(parents=True)
        first = {**self.first, "run_id": run_id, "task_sha256": sha256}
        events.write_bytes(json.dumps(first, separators=(",", ":")).encode() + b"\n" + self.rest)
        record = {**self.task, "id": f"{self.task['id']}-{task}", "text": text, "sha256": sha256}
        (place / "task.json").write_text(json.dumps(record))
        (place / "verdict.json").write_bytes(self.verdict)
        (place / "config.json").write_bytes(self.config)
        return events.stat().st_size


def measure(place: Path, name: str, options: argparse.Namespace) -> bool:
    """One export: prints a line, returns whether both targets were met."""
    output = place / f"out-{name}"
    shutil.rmtree(output, ignore_errors=True)
    command = [sys.executable, "-m", "agent", "export", str(place / "runs"), "--format", name, "-o", str(output)]
    command += ["--json", *options.extra.split()]
    command += ["--as", options.layout] if options.layout else []
    command += ["--jobs", str(options.jobs)] if options.jobs else []
    began, cpu_began = time.monotonic(), _children_cpu_s()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    memory = Memory(process.pid)
    out, _ = process.communicate()
    seconds, cpu_s = time.monotonic() - began, _children_cpu_s() - cpu_began
    peak_mb = memory.stop()
    if process.returncode:
        print(f"{name}: agent export ended with {process.returncode}")
        return False
    result = json.loads(out)
    size = sum(file["bytes"] for file in result["files"])
    print(
        f"{name:<15} {result['rows']} rows, {size / 1e6:.0f} MB: {seconds:.1f} s (at most {TARGET_S:.0f}), "
        f"{cpu_s:.1f} s of CPU, peak {peak_mb:.0f} MB (at most {TARGET_MB:.0f})"
    )
    return seconds <= TARGET_S and peak_mb <= TARGET_MB


class Memory:
    """Samples the memory of a process and its children until it is stopped."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._peak = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()

    def stop(self) -> float:
        """The peak in MB."""
        self._done.set()
        self._thread.join()
        return self._peak / 1e6

    def _sample(self) -> None:
        while not self._done.wait(0.2):
            try:
                family = [self._process, *self._process.children(recursive=True)]
            except psutil.Error:
                return
            self._peak = max(self._peak, sum(map(_held, family)))


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _held(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


if __name__ == "__main__":
    sys.exit(main())

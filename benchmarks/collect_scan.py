"""Measures how long a resumed collection takes to find out where each of its stored episodes stands.

usage: python benchmarks/collect_scan.py [--episodes N] [--samples K] [--keep FOLDER]
The episodes are copies of the shipped recorded runs (verdict.json of 16 to 19 kB, logs of 50 to 70 kB), every fiftieth
cut off somewhere and without its line in attempts.jsonl, as a killed driver leaves them. Prints the time of a first
scan in a new process with a cold page cache (where it may be dropped) and a warm one, and again with attempts.jsonl
taken away, when every verdict and log must be read. Exit code 1 where the target is missed with the list.
"""

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agent.batch.board import Board
from agent.batch.collection import Collection, make_plan
from agent.batch.executor import Done, Job
from agent.batch.records import attempt_line
from agent.batch.scan import read_end, read_histories, scan
from agent.batch.spending import Spending
from agent.config import Config, load_config
from agent.tasks.task import Task, load_task
from agent.trajectory.folder import RunFolder

ROOT: Final = Path(__file__).resolve().parents[1]
TARGET_S: Final = 5.0
CUT_EVERY: Final = 50
DROP_CACHES: Final = Path("/proc/sys/vm/drop_caches")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--keep", type=Path, help="make it here, or use what is here")
    parser.add_argument("--scan", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.scan:
        return scan_once(options.scan)
    with tempfile.TemporaryDirectory(prefix="collect-scan-") as scratch:
        path = options.keep or Path(scratch) / "collection"
        if not (path / "collection.json").exists():
            make(path, options.episodes, options.samples)
        print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        codes = [measure(path, label) for label in ("cold", "warm") if label == "warm" or drop_caches()]
        listed = path / "attempts.jsonl"
        listed.rename(listed.with_suffix(".away"))
        try:
            for label in ("cold, without the list", "warm, without the list"):
                if label.startswith("warm") or drop_caches():
                    measure(path, label)
        finally:
            listed.with_suffix(".away").rename(listed)
    return max(codes)


def make(path: Path, episodes: int, samples: int) -> None:
    sources = sorted((ROOT / "examples").glob("*/run"))
    models = [load_task(source.parent / "model.py") for source in sources]
    tasks = [
        Task(path=model.path, name=f"{model.name}-{index:05}", text=model.text, sha256=model.sha256)
        for index in range(episodes // samples)
        for model in (models[index % len(models)],)
    ]
    config = load_config(settings=["sandbox.kind=bubblewrap", "judge.target=cpu"])
    plan = make_plan(tasks, settings=config, samples=samples)
    collection = Collection.at(path)
    collection.path.mkdir(parents=True)
    collection.settle_plan(plan)
    lines: list[str] = []
    for number, (index, entry, sample) in enumerate(
        (index, entry, sample) for index, entry in enumerate(plan.tasks) for sample in range(samples)
    ):
        folder = RunFolder.create(collection.sample_folder(entry, sample), tasks[index], config)
        for name in ("events.jsonl", "verdict.json"):
            shutil.copyfile(sources[index % len(sources)] / name, folder.path / name)
        if number % CUT_EVERY == 0:
            (folder.path / "verdict.json").unlink()
            os.truncate(folder.events, folder.events.stat().st_size * 2 // 3)
            continue
        lines.append(json.dumps(listed_attempt(collection, tasks[index], sample, folder, config)) + "\n")
    collection.attempts.path.write_text("".join(lines), encoding="ascii")


def listed_attempt(
    collection: Collection, task: Task, sample: int, folder: RunFolder, config: Config
) -> dict[str, Any]:
    """The line that the driver writes; all lines are written at once here, because each of its own is an fsync."""
    end = read_end(folder.events)
    assert end is not None
    done = Done(
        job=Job(task=task, sample=sample, attempt=0, folder=folder.path.parent, config=config),
        outcome="settled",
        run=folder.path,
        reason=end.reason,
        reward=end.reward,
        turns=end.turns,
        seconds=end.wall_s,
    )
    return attempt_line(done, collection=collection.path)


def drop_caches() -> bool:
    os.sync()
    with suppress(OSError):
        DROP_CACHES.write_text("3", encoding="ascii")
        return True
    print("the page cache cannot be dropped here: warm only")
    return False


def measure(path: Path, label: str) -> int:
    done = subprocess.run([sys.executable, __file__, "--scan", str(path)], capture_output=True, text=True)
    print(f"{label}: {done.stdout.strip()}{done.stderr}")
    return done.returncode


def scan_once(path: Path) -> int:
    began, began_cpu = time.monotonic(), time.process_time()
    collection = Collection.at(path)
    plan = collection.read_plan()
    assert plan is not None
    board = Board(len(plan.tasks), plan.samples, Spending())
    for sample in scan(collection, plan, histories=read_histories(collection), forgiven={}):
        board.place(sample)
    seconds, cpu = time.monotonic() - began, time.process_time() - began_cpu
    states = dict(Counter(sample.state for sample in board.states.values()))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{board.total} episodes in {seconds:.2f} s (target {TARGET_S:g}; CPU {cpu:.2f} s), {states}, "
        f"rewards {board.rewards}, peak memory {peak_mb:.0f} MB"
    )
    return 0 if seconds <= TARGET_S else 1


if __name__ == "__main__":
    sys.exit(main())

"""Kills the driver of a collection at random moments, and sandboxes under it, and counts what is left in the end.

usage: python benchmarks/collect_kill.py [--executor local|ray] [--kills N] [--sandbox-kills N] [--tasks N] …
One collection; `agent collect` runs as a program of its own, is killed with SIGKILL after a random time (its sandboxes
with it), and the same command is started again, N times; between two kills of the driver, random processes of its
sandboxes are killed too, with --executor ray also Ray's workers (on a cluster of this machine). After the last kill it
runs to its end. Prints a table with one row per kill. Exit code 1 unless every (task, sample) has exactly one settled
verdict, no settled verdict was ever changed or lost, and no attempt was recorded as settled twice.
"""

import argparse
import hashlib
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collect_load import MODEL, commit

from agent.batch.collection import Collection
from agent.trajectory.folder import RunFolder
from agent.trajectory.stored import find_runs, read_ending

START = "import sys; from agent.batch.collect import CollectRequest, run_collect; from pathlib import Path\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--executor", choices=("local", "ray"), default="local")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--sandbox-kills", type=int, default=10)
    parser.add_argument("--tasks", type=int, default=12)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--longest-s", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, seed {seed}, commit {commit()}"
    )
    with tempfile.TemporaryDirectory(prefix="collect-kill-") as scratch:
        return torture(Path(scratch), options, random.Random(seed))


def torture(folder: Path, options: argparse.Namespace, chance: random.Random) -> int:
    write_inputs(folder, options.tasks)
    out = folder / "collection"
    seen: dict[str, str] = {}
    changed = 0
    left = options.sandbox_kills
    print(
        f"{'kill':>4} {'after s':>8} {'others killed':>17} {'runs':>5} "
        f"{'settled':>8} {'not settled':>12} {'attempts':>9}"
    )
    began = time.monotonic()
    for number in range(1, options.kills + 1):
        program = start(folder, options)
        if chance.random() < 0.8:  # else while it starts, which takes seconds on a busy machine
            wait_for_work(program, options.executor)
        moment = chance.uniform(0.3, options.longest_s)
        wanted = min(left, chance.choice((0, 0, 1, 1, 2)))
        killed = kill_sandboxes(program, moment, wanted, chance)
        left -= killed
        ended = program.poll() is not None
        left_behind = victims(program)
        program.send_signal(signal.SIGKILL)
        program.wait()
        psutil.wait_procs(left_behind, timeout=30)  # a worker of Ray notices within seconds that its driver is gone
        changed += check_settled(out, seen)
        runs = len(list(find_runs([out]))) if (out / "tasks").is_dir() else 0
        attempts = sum(1 for _ in Collection.at(out).attempts.read())
        note = "  (it had ended)" if ended else ""
        print(
            f"{number:>4} {moment:>8.2f} {killed:>17} {runs:>5} "
            f"{len(seen):>8} {runs - len(seen):>12} {attempts:>9}{note}"
        )
    program = start(folder, options)
    code = program.wait()
    changed += check_settled(out, seen)
    return report(out, options, changed=changed, code=code, sandbox_kills=options.sandbox_kills - left, began=began)


def write_inputs(folder: Path, tasks: int) -> None:
    rows = ({"id": f"task-{i:02}", "code": MODEL} for i in range(tasks))
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    commands = [f"echo {n} >> notes; sleep 0.{n}; cat notes; head -c 20000 /dev/zero | tr '\\0' x" for n in range(1, 9)]
    turns = [f"## Turn {n}\n\n```action bash\n{command}\n```\n" for n, command in enumerate(commands, 1)]
    head = "---\nauthor: hand-written\ntarget: cpu\ntask: model.py\n---\n\n"
    (folder / "turns.md").write_text(head + "\n".join(turns), encoding="utf-8")


def start(folder: Path, options: argparse.Namespace) -> "subprocess.Popen[bytes]":
    code = START + (
        f"sys.exit(run_collect(CollectRequest(tasks={str(folder / 'tasks.jsonl')!r}, output=Path({str(folder)!r}) / "
        f"'collection', samples={options.samples}, workers={options.workers}, plain=True, "
        f"executor={options.executor!r}, "
        f"flags={{'backend.script': {str(folder / 'turns.md')!r}, 'sandbox.kind': 'bubblewrap'}})))"
    )
    log = (folder / "driver.log").open("ab")
    root = Path(__file__).resolve().parents[1]
    return subprocess.Popen([sys.executable, "-c", code], cwd=root, stdout=log, stderr=log)


def wait_for_work(program: "subprocess.Popen[bytes]", executor: str) -> None:
    """Until the driver has its first sandbox (Ray: worker), or ended."""
    while program.poll() is None:
        if any(executor == "local" or found.name() != "bwrap" for found in victims(program)):
            return
        time.sleep(0.05)


def victims(program: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    """Sandboxes, and the processes of Ray that have a task of ours (their title is its name)."""
    found = []
    with suppress(psutil.Error):
        for process in psutil.Process(program.pid).children(recursive=True):
            with suppress(psutil.Error):
                if process.name() == "bwrap" or " ".join(process.cmdline()).startswith("ray::task-"):
                    found.append(process)
    return found


def kill_sandboxes(program: "subprocess.Popen[bytes]", moment: float, wanted: int, chance: random.Random) -> int:
    """Sleeps until `moment`, killing a process of a sandbox at random times meanwhile."""
    deadline, killed = time.monotonic() + moment, 0
    times = sorted(chance.uniform(moment / 3, moment) for _ in range(wanted))
    for due in times:
        time.sleep(max(0.0, deadline - moment + due - time.monotonic()))
        if below := victims(program):
            with suppress(psutil.Error):
                chance.choice(below).kill()
                killed += 1
    time.sleep(max(0.0, deadline - time.monotonic()))
    return killed


def check_settled(out: Path, seen: dict[str, str]) -> int:
    """How many verdicts that were settled before are gone or different now; `seen` gets the new ones."""
    if not (out / "tasks").is_dir():
        return 0
    now = {}
    for run in find_runs([out]):
        ending = read_ending(run)
        if ending is not None and ending.settled:
            now[str(run.path)] = hashlib.sha256((run.path / "verdict.json").read_bytes()).hexdigest()
    wrong = sum(now.get(path) != sha256 for path, sha256 in seen.items())
    seen.update(now)
    return wrong


def report(out: Path, options: argparse.Namespace, *, changed: int, code: int, sandbox_kills: int, began: float) -> int:
    collection = Collection.at(out)
    plan = collection.read_plan()
    assert plan is not None
    settled: Counter[tuple[str, int]] = Counter()
    for entry in plan.tasks:
        for sample in range(plan.samples):
            runs = find_runs([collection.sample_folder(entry, sample)])
            settled[entry.id, sample] = sum(is_settled(run) for run in runs)
    lines = list(collection.attempts.read())
    twice = [key for key, n in Counter((x["task"], x["sample"]) for x in lines if not x["error"]).items() if n > 1]
    faults = Counter(line["error"] for line in lines if line["error"])
    runs = len(list(find_runs([out])))
    print(
        f"\n{options.executor}: {options.kills} kills of the driver, {sandbox_kills} of sandboxes and workers, "
        f"{time.monotonic() - began:.0f} s, exit {code}"
    )
    once, none = sum(n == 1 for n in settled.values()), sum(n == 0 for n in settled.values())
    more = len(settled) - once - none
    print(f"{len(settled)} samples: {once} with exactly one settled verdict, {none} without, {more} with more")
    print(f"settled verdicts changed or lost: {changed}; recorded as settled twice: {len(twice)}")
    print(f"{runs} runs; attempts without a verdict: {dict(faults)}")
    good = code == 0 and changed == 0 and not twice and all(n == 1 for n in settled.values())
    return 0 if good else 1


def is_settled(run: RunFolder) -> bool:
    ending = read_ending(run)
    return ending is not None and ending.settled


if __name__ == "__main__":
    sys.exit(main())

"""Plays the built-in policy on the tasks of benchmarks/builtin_tasks: `python benchmarks/builtin_tasks.py [NAME…]`.

Covers whole episodes with their judgement, one after the other, as a user gets them; with `--jobs N` several at once,
which take turns at what is timed, so that their seconds contain waiting. Does not cover operators beyond those of the
tasks. `--target cuda` multiplies the first size of every input by `--scale` and needs a GPU. Ratios of one
judgement belong together; the shares at the end are what the policy is held to. With `--out FOLDER` every row is kept
in FOLDER/rows.jsonl as it is made, and the same command goes on after any end.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TASKS = ROOT / "benchmarks" / "builtin_tasks"


def episode(path: Path, *, flags: argparse.Namespace, folder: Path) -> dict:
    """verdict, stop detail and seconds of one run."""
    model = folder / path.stem / "model.py"
    model.parent.mkdir(parents=True, exist_ok=True)
    model.write_text(path.read_text().replace("SCALE = 1\n", f"SCALE = {flags.scale}\n"))
    command = [sys.executable, "-m", "agent", "optimize", str(model), "--backend", "builtin", "--target", flags.target]
    command += ["--sandbox", flags.sandbox, "--json", "-o", str(folder / "runs")]
    command += [part for setting in flags.set for part in ("--set", setting)]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    seconds = time.monotonic() - started
    lines = done.stdout.strip().splitlines()
    if not lines:
        return {"seconds": seconds, "error": done.stderr.strip()[-300:]}
    events = [json.loads(line) for line in lines]
    stop = next((event for event in events if event.get("type") == "stop"), {})
    return {"seconds": seconds, "result": events[-1], "detail": stop.get("detail", "")}


def ratio(verdict: dict, baseline: str) -> str:
    found = (verdict.get("speedup") or {}).get(baseline)
    return f"{found['ratio']:.2f} ({found['low']:.2f}-{found['high']:.2f})" if found else "-"


def call(verdict: dict, baseline: str) -> str:
    return ((verdict.get("speedup") or {}).get(baseline) or {}).get("call", "-")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="tasks, or the beginnings of their names (default: all)")
    parser.add_argument("--target", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--scale", type=int, help="factor of the first size (default: 1 for cpu, 16 for cuda)")
    parser.add_argument("--sandbox", default="auto", choices=("auto", "docker", "bubblewrap", "none"))
    parser.add_argument("--out", type=Path, help="where runs are kept (default: a temporary folder)")
    parser.add_argument("--jobs", type=int, default=1, help="episodes played at once (default: 1)")
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c", help="passed on to agent optimize")
    flags = parser.parse_args()
    flags.scale = flags.scale or (16 if flags.target == "cuda" else 1)
    paths = [p for p in sorted(TASKS.glob("*.py")) if not flags.names or p.stem.startswith(tuple(flags.names))]
    with tempfile.TemporaryDirectory() as temporary:
        folder = (flags.out or Path(temporary)).absolute()
        print(f"{time.strftime('%Y-%m-%d')}, target {flags.target}, scale {flags.scale}, {len(paths)} tasks")
        print(
            f"{'task':24} {'verdict':10} {'rew':>3}  {'eager / candidate':>20}  {'compile / candidate':>20}  {'s':>4}"
        )
        folder.mkdir(parents=True, exist_ok=True)
        known = kept(folder / "rows.jsonl")
        rows = [shown(name, found) for name, found in played(paths, known, flags=flags, folder=folder)]
    return summary(rows)


def played(paths: list[Path], known: dict, *, flags: argparse.Namespace, folder: Path) -> Iterator[tuple[str, dict]]:
    """What is known and what is found, as it comes."""
    yield from ((path.stem, known[path.stem]) for path in paths if path.stem in known)
    with ThreadPoolExecutor(flags.jobs) as pool:
        missing = [path for path in paths if path.stem not in known]
        running = {pool.submit(episode, path, flags=flags, folder=folder): path.stem for path in missing}
        for done in as_completed(running):
            found = done.result()
            if not is_trouble(found):
                with (folder / "rows.jsonl").open("a") as file:
                    file.write(json.dumps({"task": running[done]} | found) + "\n")
            yield running[done], found


def kept(rows: Path) -> dict:
    """What an earlier command has found, by task."""
    lines = rows.read_text().splitlines() if rows.exists() else []
    return {found["task"]: found for found in map(json.loads, lines)}


def is_trouble(found: dict) -> bool:
    """Whether nothing was learnt of the task: it is played again next time."""
    return "result" not in found


def shown(name: str, found: dict) -> dict:
    """Prints one line; what counts of the run."""
    seconds = found["seconds"]
    result = found.get("result") or {}
    verdict = result.get("verdict") or {}
    submitted = result.get("reason") == "submitted"
    word = verdict.get("verdict", "error") if submitted else "none"
    ratios = f"{ratio(verdict, 'eager'):>20}  {ratio(verdict, 'compile'):>20}"
    print(f"{name:24} {word:10} {verdict.get('reward')!s:>3}  {ratios}  {seconds:4.0f}", flush=True)
    why = found.get("error") or result.get("message") or ("" if submitted else found.get("detail", ""))
    for line in [why, *(f"{r['code']}: {r['detail']}" for r in verdict.get("reasons", []) if submitted)]:
        if line:
            print(f"    {line}")
    return {
        "submitted": submitted,
        "accepted": submitted and word == "accepted",
        "faster": submitted and call(verdict, "compile") == "faster",
        "seconds": seconds,
    }


def summary(rows: list[dict]) -> int:
    count = len(rows)
    submitted, accepted = (sum(row[key] for row in rows) for key in ("submitted", "accepted"))
    faster = sum(row["faster"] for row in rows)
    print(f"submitted {submitted} of {count} (aim 80 %), accepted {accepted} of {submitted} (aim 95 %),")
    print(f"faster than torch.compile {faster} of {count} (aim 60 %), longest {max(r['seconds'] for r in rows):.0f} s")
    return 0 if submitted >= 0.8 * count and accepted >= 0.95 * submitted and faster >= 0.6 * count else 1


if __name__ == "__main__":
    sys.exit(main())

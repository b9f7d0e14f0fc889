"""Judges the recorded submission of every example and prints a table: `python benchmarks/examples.py [NAME…]`.

Covers what `agent judge` covers: a fresh build, checks and paired timing in a fresh sandbox. Does not cover how the
submission came about; `agent show examples/NAME/run` replays that. Ratios of one judgement belong together.
"""

import argparse
import json
import platform
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def recorded_target(run: Path) -> str:
    return str(json.loads((run / "config.json").read_text())["judge"]["target"])


def judged(submission: Path, *, target: str, sandbox: str) -> dict:
    command = [
        sys.executable,
        "-m",
        "agent",
        "judge",
        str(submission),
        "--target",
        target,
        "--sandbox",
        sandbox,
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if not done.stdout:
        sys.exit(done.stderr.strip())
    return json.loads(done.stdout)


def ratio(verdict: dict, baseline: str) -> str:
    speedup = (verdict["speedup"] or {}).get(baseline)
    return f"{speedup['ratio']:.2f} ({speedup['low']:.2f}-{speedup['high']:.2f})" if speedup else "-"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="examples (default: all of the target that ship a recorded run)")
    parser.add_argument("--target", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--sandbox", default="auto", choices=("auto", "docker", "bubblewrap"))
    flags = parser.parse_args()
    folders = sorted((ROOT / "examples").glob("*/run/best"))
    of_target = [folder for folder in folders if recorded_target(folder.parent) == flags.target]
    chosen = [folder for folder in of_target if not flags.names or folder.parents[1].name in flags.names]
    print(f"{time.strftime('%Y-%m-%d')}, {platform.machine()}, target {flags.target}, sandbox {flags.sandbox}")
    ratios = f"{'eager / candidate':>20}  {'compile / candidate':>20}"
    print(f"{'example':22} {'verdict':9} {'reward':>6}  {ratios}  {'ms':>6} quiet")
    worst = 3
    for folder in chosen:
        verdict = judged(folder, target=flags.target, sandbox=flags.sandbox)
        worst = min(worst, verdict["reward"] or -1)
        candidate = (verdict["median_us"] or {}).get("candidate")
        quiet = verdict["evidence"].get("timing", {}).get("quiet")
        left = f"{folder.parents[1].name:22} {verdict['verdict']:9} {verdict['reward']!s:>6}"
        ratios = f"{ratio(verdict, 'eager'):>20}  {ratio(verdict, 'compile'):>20}"
        print(f"{left}  {ratios}  {candidate / 1e3 if candidate else float('nan'):6.2f} {quiet}", flush=True)
        for reason in verdict["reasons"]:
            print(f"    {reason['code']}: {reason['detail']}")
    return 0 if chosen and worst == 3 else 1


if __name__ == "__main__":
    sys.exit(main())

"""Judges every task of a set once with its own eager model as an `open` submission: all should be accepted, and the
speed-up over eager should be called inconclusive, for it is the same code.

`python benchmarks/tasks_judged.py SET [--target cpu] [--first N] [--out VERDICTS.jsonl]`; goes on where OUT ends.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("set", type=Path)
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sandbox", default="bubblewrap")
    parser.add_argument("--first", type=int, default=0, help="only the first N tasks")
    parser.add_argument("--out", type=Path, default=Path("verdicts.jsonl"))
    options = parser.parse_args(argv)
    rows = [json.loads(line) for line in options.set.read_text(encoding="utf-8").splitlines()]
    known = {one["task_id"]: one for one in read(options.out)}
    for number, row in enumerate(rows[: options.first or None], 1):
        if row["task_id"] not in known:
            known[row["task_id"]] = one = judged(row, options)
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(one) + "\n")
            print(
                f"{number:4} {one['verdict']:9} {one['call']:13} {one['ratio']:6.3f} {row['task_id']} {one['reason']}",
                flush=True,
            )
    return summary([known[row["task_id"]] for row in rows[: options.first or None]])


def read(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def judged(row: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="tasks-judged-") as name:
        task, submission = Path(name) / "model.py", Path(name) / "model_new.py"
        task.write_text(row["code"], encoding="utf-8")
        text = row["code"].replace("class Model(nn.Module)", "class ModelNew(nn.Module)")
        submission.write_text(text, encoding="utf-8")
        argv = [sys.executable, "-m", "agent", "judge", str(task), str(submission), "--policy", "open", "--json"]
        argv += ["--target", options.target, "--sandbox", options.sandbox]
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    try:
        verdict = json.loads(done.stdout)
    except ValueError:
        verdict = {"verdict": "error", "reasons": [{"code": "none", "detail": done.stderr[-300:]}]}
    eager = (verdict.get("speedup") or {}).get("eager") or {}
    reason = "; ".join(f"{reason['code']}: {reason['detail'][:100]}" for reason in verdict.get("reasons", []))
    return {
        "task_id": row["task_id"],
        "verdict": verdict["verdict"],
        "call": eager.get("call", "-"),
        "ratio": eager.get("ratio", 0.0),
        "reason": reason,
    }


def summary(found: Sequence[dict[str, Any]]) -> int:
    verdicts, calls = Counter(one["verdict"] for one in found), Counter(one["call"] for one in found)
    print(f"{len(found)} tasks: {dict(verdicts)}; over eager: {dict(calls)}")
    ratios = sorted(one["ratio"] for one in found if one["verdict"] == "accepted")
    if ratios:
        print(f"eager / the same code: {ratios[0]:.3f} to {ratios[-1]:.3f}, median {ratios[len(ratios) // 2]:.3f}")
    return 0 if verdicts["accepted"] == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())

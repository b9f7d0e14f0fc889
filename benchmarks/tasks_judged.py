"""Judges every task of a set once with its own eager model as an `open` submission: all should be accepted, and the
speed-up over eager should be called inconclusive, for it is the same code.

`python benchmarks/tasks_judged.py SET [--target cpu] [--budget-s 6] [--limit-s S] [--out VERDICTS.jsonl]`; goes on
where OUT ends. It runs tools/judge.py itself: a look at the task before and a compile cache of its own, which
`agent judge` adds for the next judgements of the same task, are of no use to one judgement each. What torch finds out
about the compiler, the same for all tasks, is found out once and copied into each one's cache.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agent.assets import asset
from agent.config import load_config
from agent.judging.sandboxes import sandbox_limits
from agent.sandbox.base import CACHE, TOOLS, WORKSPACE, ExecResult, Mount, SandboxSpec
from agent.sandbox.open import open_sandbox

TIMEOUT_S: Final = 900.0
Row = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("set", type=Path)
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sandbox", choices=("bubblewrap", "docker"), default="bubblewrap")
    parser.add_argument("--first", type=int, default=0, help="only the first N tasks")
    parser.add_argument("--budget-s", type=float, default=6.0, help="aim for the timed rounds of one task")
    parser.add_argument("--limit-s", type=float, default=0.0, help="begin no task after this time")
    parser.add_argument("--out", type=Path, default=Path("verdicts.jsonl"))
    options = parser.parse_args(argv)
    rows = [json.loads(line) for line in options.set.read_text(encoding="utf-8").splitlines()]
    wanted = rows[: options.first or None]
    known = {one["task_id"]: one for one in read(options.out)}
    until = time.monotonic() + options.limit_s if options.limit_s else float("inf")
    with tempfile.TemporaryDirectory(prefix="tasks-judged-") as name:
        bench = Bench(options, Path(name), wanted[0])
        for number, row in enumerate(wanted, 1):
            if row["task_id"] in known or time.monotonic() > until:
                continue
            known[row["task_id"]] = one = bench.judged(row)
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(one) + "\n")
            print(line(number, one), flush=True)
    return summary([known[row["task_id"]] for row in wanted if row["task_id"] in known], of=len(wanted))


class Bench:
    """Judges in sandboxes of one kind; `folder` is for workspaces and caches."""

    def __init__(self, options: argparse.Namespace, folder: Path, first: Row) -> None:
        self.options = options
        self.folder = folder
        flags = {"judge.target": options.target, "sandbox.kind": options.sandbox}
        self.config = load_config(files=(), settings=(), flags=flags)
        self.seed = folder / "seed"
        self.seed.mkdir()
        self._tool(first, self.seed, ("warm_cache.py", "--out", CACHE, "--target", options.target), writable=True)

    def judged(self, row: Row) -> Row:
        started = time.monotonic()
        flags = ("--workspace", WORKSPACE, "--target", self.options.target, "--policy", "open", "--cache", CACHE)
        with tempfile.TemporaryDirectory(prefix="cache-", dir=self.folder) as name:
            cache = Path(name)
            (cache / "baselines").mkdir()
            for seeded in (self.seed / "baselines").glob("*"):
                subprocess.run(["cp", "-r", str(seeded), str(cache / "baselines" / row["sha256"])], check=True)
            budget = ("--budget-s", f"{self.options.budget_s:g}")
            result = self._tool(row, cache, ("judge.py", *flags, *budget))
        try:
            verdict = json.loads(result.stdout.text())
        except ValueError:
            verdict = {"verdict": "error", "reasons": [{"code": "none", "detail": result.stderr.text()[-300:]}]}
        eager = (verdict.get("speedup") or {}).get("eager") or {}
        reason = "; ".join(f"{reason['code']}: {reason['detail'][:100]}" for reason in verdict.get("reasons", []))
        return {
            "task_id": row["task_id"],
            "sha256": row["sha256"],
            "verdict": verdict["verdict"],
            "call": eager.get("call", "-"),
            "ratio": eager.get("ratio", 0.0),
            "low": eager.get("low", 0.0),
            "high": eager.get("high", 0.0),
            "reason": reason,
            "marks_s": (verdict.get("evidence") or {}).get("marks_s"),
            "seconds": round(time.monotonic() - started, 1),
        }

    def _tool(self, row: Row, cache: Path, tool: tuple[str, ...], *, writable: bool = False) -> ExecResult:
        with tempfile.TemporaryDirectory(prefix="workspace-", dir=self.folder) as name:
            text = row["code"].replace("class Model(nn.Module)", "class ModelNew(nn.Module)")
            (Path(name) / "model_new.py").write_text(text, encoding="utf-8")
            spec = SandboxSpec(
                workspace=Path(name),
                mounts=(Mount(asset("tools"), TOOLS), Mount(cache, CACHE, read_only=not writable)),
                limits=sandbox_limits(self.config.sandbox),
                gpus="all" if self.options.target == "cuda" else "none",
            )
            sandbox = open_sandbox(self.config.sandbox, spec, target=self.options.target)
            try:
                argv = (sandbox.python, "-I", f"{TOOLS}/{tool[0]}", *tool[1:])
                stdin = json.dumps({"model_py": row["code"]}).encode("ascii")
                return sandbox.exec(argv, timeout_s=TIMEOUT_S, stdin=stdin)
            finally:
                sandbox.close()


def line(number: int, one: Row) -> str:
    shown = f"{number:4} {one['verdict']:9} {one['call']:13} {one['ratio']:6.3f} ({one['low']:.3f}-{one['high']:.3f})"
    return f"{shown} {one['seconds']:6.1f} s  {one['task_id']} {one['reason']}"


def read(path: Path) -> Iterator[Row]:
    if path.exists():
        yield from (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def summary(found: Sequence[Row], *, of: int) -> int:
    verdicts, calls = Counter(one["verdict"] for one in found), Counter(one["call"] for one in found)
    print(f"{len(found)} of {of} tasks judged: {dict(verdicts)}; over eager: {dict(calls)}")
    ratios = sorted(one["ratio"] for one in found if one["verdict"] == "accepted")
    if ratios:
        print(f"eager / the same code: {ratios[0]:.3f} to {ratios[-1]:.3f}, median {ratios[len(ratios) // 2]:.3f}")
    return 0 if verdicts["accepted"] == len(found) == of else 1


if __name__ == "__main__":
    sys.exit(main())

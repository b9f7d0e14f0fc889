"""Judges every task of a set once with its own eager model as an `open` submission: all should be accepted, and the
speed-up over eager should be called inconclusive, for it is the same code.

`python benchmarks/tasks_judged.py SET [--target cpu] [--budget-s 6] [--limit-s S] [--out VERDICTS.jsonl]`; goes on
where OUT ends. It runs tools/judge.py itself: a look at the task before and a compile cache of its own, which
`agent judge` adds for the next judgements of the same task, are of no use to one judgement each. What torch finds out
about the compiler, the same for all tasks, is found out once and copied into each one's cache. With --warm N the
baselines of all tasks are compiled before, N at once: for a GPU, which has to be quiet while a task is judged.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agent.assets import asset
from agent.config import load_config
from agent.judging.sandboxes import sandbox_limits
from agent.sandbox.base import CACHE, TOOLS, WORKSPACE, Mount, SandboxSpec
from agent.sandbox.open import open_sandbox

TIMEOUT_S: Final = 900.0
Row = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("set", type=Path)
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sandbox", choices=("bubblewrap", "docker", "none"), default="bubblewrap")
    parser.add_argument("--first", type=int, default=0, help="only the first N tasks")
    parser.add_argument("--every", type=int, default=1, help="only each Nth task")
    parser.add_argument("--warm", type=int, default=0, help="compile so many baselines at once, before anything else")
    parser.add_argument("--budget-s", type=float, default=6.0, help="aim for the timed rounds of one task")
    parser.add_argument("--limit-s", type=float, default=0.0, help="begin no task after this time")
    parser.add_argument("--out", type=Path, default=Path("verdicts.jsonl"))
    options = parser.parse_args(argv)
    rows = [json.loads(line) for line in options.set.read_text(encoding="utf-8").splitlines()]
    wanted = rows[: options.first or None : options.every]
    known = {one["task_id"]: one for one in read(options.out)}
    until = time.monotonic() + options.limit_s if options.limit_s else float("inf")
    with tempfile.TemporaryDirectory(prefix="tasks-judged-") as name:
        bench = Bench(options, Path(name), wanted[0])
        if options.warm:
            bench.warm([row for row in wanted if row["task_id"] not in known])
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
        flags = {"judge.target": options.target, "sandbox.kind": options.sandbox.replace("none", "auto")}
        self.config = load_config(files=(), settings=(), flags=flags)
        self.caches: dict[str, Path] = {}
        self.seed = self._warmed(first, folder / "seed")

    def warm(self, rows: Sequence[Row]) -> None:
        with ThreadPoolExecutor(self.options.warm) as pool:
            places = [self.folder / f"warm-{row['sha256'][:16]}" for row in rows]
            for row, cache in zip(rows, pool.map(self._warmed, rows, places), strict=True):
                self.caches[row["sha256"]] = cache

    def _warmed(self, row: Row, cache: Path) -> Path:
        cache.mkdir()
        self._tool(row, cache, "warm_cache.py", writable=True)
        return cache

    def judged(self, row: Row) -> Row:
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="cache-", dir=self.folder) as name:
            cache = self.caches.get(row["sha256"], Path(name))
            if row["sha256"] not in self.caches:
                (cache / "baselines").mkdir()
                for seeded in (self.seed / "baselines").glob("*"):
                    subprocess.run(["cp", "-r", str(seeded), str(cache / "baselines" / row["sha256"])], check=True)
            budget = ("--budget-s", f"{self.options.budget_s:g}")
            said, trouble = self._tool(row, cache, "judge.py", "--policy", "open", *budget)
        try:
            verdict = json.loads(said)
        except ValueError:
            verdict = {"verdict": "error", "reasons": [{"code": "none", "detail": trouble[-300:]}]}
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

    def _tool(self, row: Row, cache: Path, tool: str, *flags: str, writable: bool = False) -> tuple[str, str]:
        """What it says on its two streams."""
        with tempfile.TemporaryDirectory(prefix="workspace-", dir=self.folder) as name:
            text = row["code"].replace("class Model(nn.Module)", "class ModelNew(nn.Module)")
            (Path(name) / "model_new.py").write_text(text, encoding="utf-8")
            stdin = json.dumps({"model_py": row["code"]}).encode("ascii")
            if self.options.sandbox == "none":
                argv = [sys.executable, *self._flags(tool, str(asset("tools")), name, str(cache)), *flags]
                done = subprocess.run(argv, input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False)
                return done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
            spec = SandboxSpec(
                workspace=Path(name),
                mounts=(Mount(asset("tools"), TOOLS), Mount(cache, CACHE, read_only=not writable)),
                limits=sandbox_limits(self.config.sandbox),
                gpus="all" if self.options.target == "cuda" else "none",
            )
            sandbox = open_sandbox(self.config.sandbox, spec, target=self.options.target)
            try:
                argv = [sandbox.python, *self._flags(tool, TOOLS, WORKSPACE, CACHE), *flags]
                result = sandbox.exec(argv, timeout_s=TIMEOUT_S, stdin=stdin)
                return result.stdout.text(), result.stderr.text()
            finally:
                sandbox.close()

    def _flags(self, tool: str, tools: str, workspace: str, cache: str) -> tuple[str, ...]:
        places = ("--out", cache) if tool == "warm_cache.py" else ("--workspace", workspace, "--cache", cache)
        return ("-I", f"{tools}/{tool}", *places, "--target", self.options.target)


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

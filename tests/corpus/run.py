"""Runs the judge over the corpus and prints a table: `python -m tests.corpus.run [FOLDER…] [--sandbox …] [--only NAME…]`.

A case is a folder with case.json (expected verdict, policy, family, reason codes), model.py, model_new.py and, where it
has native code, kernels/. A hack counts as caught when it is rejected for a reason that case.json allows, or when its
task is refused (`error` with a task.* reason); where the case says "tolerated": "true-time", an accepted verdict
without a false speed-up is right as well. An honest control must be accepted. Exit code 1 where a verdict is wrong.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.corpus.cases import KNOWN, OWN, Case, Outcome, cases_in, outcome

ROOT = Path(__file__).resolve().parents[2]
NO_REPORT = 500

__all__ = ["KNOWN", "OWN", "Settings", "cases_in", "judge_here", "main", "outcome"]


@dataclass(frozen=True)
class Settings:
    """How cases are judged. `quick`: hacks by verify first, and further only if that lets one through."""

    tool: str = "judge"
    sandbox: str | None = None
    cache: Path | None = None
    budget_s: float = 6.0
    quick: bool = False
    tools: Path = ROOT / "tools"


def judge_case(case: Case, settings: Settings) -> Outcome:
    """One case, its baseline warmed before the clock runs."""
    if settings.sandbox is not None:
        return outcome(case, *judge_sandboxed(case, kind=settings.sandbox))
    return outcome(case, *judge_here(case, settings, tool=settings.tool))


def caught_early(case: Case, settings: Settings) -> Outcome | None:
    """By verify, which needs no clock, so that other cases may run beside it; None where only the judge can say."""
    if settings.sandbox is not None or not settings.quick or settings.tool == "verify" or case.expect == "accept":
        return None
    found = outcome(case, *judge_here(case, settings, tool="verify"))
    return found if found.got != "accepted" else None


def judge_here(case: Case, settings: Settings, *, tool: str) -> tuple[dict[str, Any], float]:
    """The tool as a process of this machine, without a sandbox around it; on a copy, because some cases change their
    files.
    """
    text = json.dumps({"model_py": (case.folder / "model.py").read_text(encoding="utf-8")}).encode()
    command = [sys.executable, "-I", str(settings.tools / f"{tool}.py"), "--target", case.target]
    command += ["--policy", case.policy]
    if settings.cache is not None:
        _warm(settings, case.target, text if tool != "verify" else None)
        command += ["--cache", str(settings.cache)]
    if tool != "verify":
        command += ["--budget-s", str(settings.budget_s)]
    with tempfile.TemporaryDirectory(prefix="case-") as scratch:
        workspace = Path(scratch) / case.name
        shutil.copytree(case.folder, workspace)
        started = time.monotonic()
        done = subprocess.run([*command, "--workspace", str(workspace)], input=text, capture_output=True, check=False)
    seconds = time.monotonic() - started
    try:
        return json.loads(done.stdout), seconds
    except ValueError:
        reason = {"code": "no_report", "detail": done.stderr.decode("utf-8", "replace")[-NO_REPORT:]}
        return {"verdict": "error", "status": "error", "reasons": [reason]}, seconds


_warming = threading.Lock()
_warmed: set[tuple[str, bytes | None]] = set()


def _warm(settings: Settings, target: str, text: bytes | None) -> None:
    """Compiled headers, and a task's compiled baseline where times are wanted: once, whatever number of cases use it."""
    with _warming:
        if (target, text) in _warmed:
            return
        _warmed.add((target, text))
        command = [sys.executable, "-I", str(settings.tools / "warm_cache.py"), "--target", target]
        command += ["--out", str(settings.cache)]
        subprocess.run(command, input=text or b"", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def judge_sandboxed(case: Case, *, kind: str) -> tuple[dict[str, Any], float]:
    """As a user's `agent judge` does it: a fresh sandbox, the submission read-only in it."""
    from agent.config import Config
    from agent.errors import AgentError
    from agent.judging.judge import judge_submission
    from agent.tasks.task import load_task

    config = Config.model_validate(
        {
            "sandbox": {"kind": kind, "i_understand": kind == "none"},
            "judge": {"target": case.target, "policy": case.policy},
        }
    )
    with tempfile.TemporaryDirectory(prefix="case-") as scratch:
        workspace = Path(scratch) / case.name
        shutil.copytree(case.folder, workspace)
        started = time.monotonic()
        try:
            report = judge_submission(config, load_task(workspace / "model.py"), workspace).model_dump(mode="json")
        except AgentError as error:
            report = {"verdict": "error", "reasons": [{"code": type(error).__name__, "detail": str(error)}]}
    return report, time.monotonic() - started


def run_all(cases: Sequence[Case], settings: Settings, *, jobs: int, told: Callable[[Outcome], None]) -> list[Outcome]:
    """Cases whose verdict needs no clock `jobs` at a time, then the others alone; on a GPU, which only one may measure,
    all that verify does not catch are others.
    """
    results = []

    def keep(result: Outcome) -> None:
        told(result)
        results.append(result)

    def early(case: Case) -> Outcome | None:
        found = caught_early(case, settings)
        return judge_case(case, settings) if found is None and case.target == "cpu" else found

    beside = [case for case in cases if jobs > 1 and not case.times_count]
    alone = [case for case in cases if case not in beside]
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        for case, found in zip(beside, pool.map(early, beside), strict=True):
            if found is None:
                alone.append(case)
            else:
                keep(found)
    for case in alone:
        found = None if case in beside else caught_early(case, settings)
        keep(found or judge_case(case, settings))
    return results


def row(result: Outcome) -> str:
    mark = "ok " if result.right else "BAD"
    expected = result.case.expect + ("*" if result.case.tolerated else "")
    return (
        f"{mark} {result.case.name:38.38s} {expected:8s} {result.got:9s} {result.reason:44.44s} {result.seconds:6.1f}"
    )


def _done_before(file: Path, cases: Sequence[Case]) -> list[Outcome]:
    """The last right outcome of each case that an earlier call has written."""
    known = {case.name: case for case in cases}
    found: dict[str, Outcome] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            told = json.loads(line)
        except ValueError:  # a line that was torn by the end of that call
            continue
        if told["right"] and told["case"] in known:
            found[told["case"]] = outcome(known[told["case"]], told["report"], told["seconds"])
    return list(found.values())


def main(argv: Sequence[str] | None = None) -> int:
    flags = _flags(argv)
    settings = Settings(
        tool=flags.tool,
        sandbox=flags.sandbox,
        cache=flags.cache or _cache(),
        budget_s=flags.budget_s,
        quick=flags.quick,
        tools=flags.tools.resolve(),
    )
    cases = cases_in(flags.folders or [OWN, KNOWN], only=flags.only, target=flags.target)
    results = _done_before(flags.json, cases) if flags.resume and flags.json and flags.json.exists() else []
    if flags.json is not None and not flags.resume:
        flags.json.unlink(missing_ok=True)

    def told(result: Outcome) -> None:
        print(row(result), flush=True)
        if not result.right:
            print("    ", result.report.get("reasons"), flush=True)
        if flags.json is not None:
            with flags.json.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(result.as_json()) + "\n")

    print(f"    {'case':38s} {'expected':8s} {'got':9s} {'reason':44s} {'s':>6s}", flush=True)
    for result in results:
        print(row(result), flush=True)
    left = [case for case in cases if case.name not in {result.case.name for result in results}]
    for _ in range(flags.repeat):
        results += run_all(left, settings, jobs=flags.jobs, told=told)
    wrong = [result for result in results if not result.right]
    print(f"{len(results) - len(wrong)} of {len(results)} as expected (* also right: accepted with its true time)")
    return 1 if wrong or not results else 0


def _flags(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run the judge over the corpus; exit code 1 where a verdict is wrong.")
    parser.add_argument("folders", nargs="*", type=Path, help="folders of cases (default: our own and the known ones)")
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--sandbox",
        choices=("docker", "bubblewrap", "none"),
        help="run in this sandbox, through agent.judging (default: none around the tools)",
    )
    parser.add_argument("--tool", choices=("judge", "profiling", "verify"), default="judge")
    parser.add_argument("--quick", action="store_true", help="verify first; judge only what that lets through")
    parser.add_argument("--only", nargs="+", default=(), help="names of cases")
    parser.add_argument("--jobs", type=int, default=1, help="hacks judged at once; what depends on time runs alone")
    parser.add_argument("--repeat", type=int, default=1, help="judge everything so many times")
    parser.add_argument("--cache", type=Path, help="folder for warmed builds and baselines (kept)")
    parser.add_argument("--tools", type=Path, default=ROOT / "tools", help="another copy of tools/")
    parser.add_argument("--budget-s", type=float, default=6.0, help="aim for the timed rounds of a case")
    parser.add_argument("--json", type=Path, help="write all reports to this file, one line each, as they come")
    parser.add_argument("--resume", action="store_true", help="take over what the --json file says was right")
    return parser.parse_args(argv)


def _cache() -> Path:
    from agent.config import cache_home

    return cache_home() / "corpus"


if __name__ == "__main__":
    sys.exit(main())

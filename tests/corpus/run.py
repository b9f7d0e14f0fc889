"""Runs the judge over folders of cases and prints a table: `python -m tests.corpus.run [FOLDER…] [--sandbox …] [--only
NAME…]`.

A case is a folder with case.json (expected verdict, policy, family), model.py, model_new.py and, where it has native
code, kernels/. A hack counts as caught when it is rejected or when its task is refused (`error` with a task.* reason);
where the case says "tolerated": "true-time", an accepted verdict without a false speed-up is right as well. An honest
control must be accepted.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OWN = Path(__file__).resolve().parent
SHARED = ROOT.parent / "shared" / "corpus"
TRUE_TIME = 1.25


@dataclass(frozen=True)
class Case:
    """One folder."""

    folder: Path
    expect: str
    policy: str
    target: str
    tolerated: bool
    faster: bool | None

    @property
    def name(self) -> str:
        return self.folder.name


@dataclass(frozen=True)
class Outcome:
    """What the judge said about a case."""

    case: Case
    got: str
    reason: str
    right: bool
    seconds: float
    report: dict[str, Any]


def read_case(folder: Path) -> Case:
    told = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    return Case(
        folder=folder,
        expect=told["expect"],
        policy=told["policy"],
        target="cpu" if told["target"] == "any" else told["target"],
        tolerated=told.get("tolerated") == "true-time",
        faster=told.get("faster"),
    )


def cases_in(folders: Sequence[Path], *, only: Sequence[str] = (), target: str = "cpu") -> list[Case]:
    found = [read_case(path.parent) for folder in folders for path in sorted(folder.glob("*/case.json"))]
    return [case for case in found if case.target == target and (not only or case.name in only)]


def judge_here(case: Case, *, tool: str, cache: Path | None, budget_s: float) -> tuple[dict[str, Any], float]:
    """The tool as a process of this machine, without a sandbox around it; on a copy, because some cases change their
    files.
    """
    with tempfile.TemporaryDirectory(prefix="case-") as scratch:
        workspace = Path(scratch) / case.name
        shutil.copytree(case.folder, workspace)
        text = json.dumps({"model_py": (case.folder / "model.py").read_text(encoding="utf-8")})
        command = [
            sys.executable,
            "-I",
            str(ROOT / "tools" / f"{tool}.py"),
            "--workspace",
            str(workspace),
            "--target",
            case.target,
        ]
        command += ["--policy", case.policy]
        if cache is not None:
            warm = [
                sys.executable,
                "-I",
                str(ROOT / "tools" / "warm_cache.py"),
                "--out",
                str(cache),
                "--target",
                case.target,
            ]
            if tool != "verify":
                subprocess.run(
                    warm, input=text.encode(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
                )
            command += ["--cache", str(cache)]
        if tool != "verify":
            command += ["--budget-s", str(budget_s)]
        started = time.monotonic()
        done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    seconds = time.monotonic() - started
    try:
        return json.loads(done.stdout), seconds
    except ValueError:
        reason = {"code": "no_report", "detail": done.stderr.decode("utf-8", "replace")[-500:]}
        return {"verdict": "error", "status": "error", "reasons": [reason]}, seconds


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


def outcome(case: Case, report: dict[str, Any], seconds: float) -> Outcome:
    told = report.get("verdict") or {"verified": "accepted", "profiled": "accepted"}.get(
        report["status"], report["status"]
    )
    reasons = report.get("reasons") or []
    reason = reasons[0]["code"] if reasons else ""
    if told == "accepted" and report.get("speedup"):
        reason = ", ".join(f"{name} {value['ratio']:.2f}x {value['call']}" for name, value in report["speedup"].items())
    return Outcome(
        case=case, got=told, reason=reason, right=_right(case, told, reasons, report), seconds=seconds, report=report
    )


def _right(case: Case, told: str, reasons: list[dict[str, str]], report: dict[str, Any]) -> bool:
    if case.expect == "accept":
        return told == "accepted"
    if told == "accepted":
        # Such a case is a clean-up of the reference at best: faster than both baselines would be a lie.
        speedup = report.get("speedup") or {}
        return case.tolerated and min((value["low"] for value in speedup.values()), default=0.0) <= TRUE_TIME
    return told == "rejected" or (bool(reasons) and reasons[0]["code"].startswith("task."))


def row(result: Outcome) -> str:
    mark = "ok " if result.right else "BAD"
    expected = result.case.expect + ("*" if result.case.tolerated else "")
    return (
        f"{mark} {result.case.name:38.38s} {expected:8s} {result.got:9s} {result.reason:44.44s} {result.seconds:6.1f}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run the judge over the corpus; exit code 1 where a verdict is wrong.")
    parser.add_argument(
        "folders", nargs="*", type=Path, help="folders of cases (default: our own and, where present, ../shared/corpus)"
    )
    parser.add_argument(
        "--sandbox",
        choices=("docker", "bubblewrap", "none"),
        help="run in this sandbox, through agent.judging (default: none around the tools)",
    )
    parser.add_argument("--tool", choices=("judge", "profiling", "verify"), default="judge")
    parser.add_argument("--only", nargs="+", default=(), help="names of cases")
    parser.add_argument("--cache", type=Path, help="folder for warmed builds and baselines (kept)")
    parser.add_argument("--budget-s", type=float, default=6.0)
    parser.add_argument("--json", type=Path, help="write all reports to this file")
    flags = parser.parse_args(argv)
    folders = flags.folders or [folder for folder in (OWN, SHARED) if folder.is_dir()]
    results = []
    for case in cases_in(folders, only=flags.only):
        if flags.sandbox:
            report, seconds = judge_sandboxed(case, kind=flags.sandbox)
        else:
            report, seconds = judge_here(case, tool=flags.tool, cache=flags.cache, budget_s=flags.budget_s)
        results.append(outcome(case, report, seconds))
        print(row(results[-1]), flush=True)
        if not results[-1].right:
            print("    ", report.get("reasons"), flush=True)
    wrong = [result for result in results if not result.right]
    print(f"{len(results) - len(wrong)} of {len(results)} as expected (* also right: accepted with its true time)")
    if flags.json is not None:
        flags.json.write_text(
            json.dumps([{"case": result.case.name, **result.report} for result in results]), encoding="utf-8"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

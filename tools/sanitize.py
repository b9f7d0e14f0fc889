"""Looks for bad accesses, races and unwritten memory: `python -I sanitize.py --workspace DIR < {"model_py": …}`.

Covered: compute-sanitizer's memcheck, racecheck and initcheck over one call, on the task's own inputs. Not covered:
paths that these inputs do not take; races in device memory between blocks (racecheck sees shared memory only).
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gputools import memory_check, staged
from taskrun import child


def main() -> int:
    parser = argparse.ArgumentParser(description="Run compute-sanitizer over a submission; prints a report as JSON.")
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--checks", default=",".join(memory_check.CHECKS))
    flags = parser.parse_args()
    stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    report: dict[str, Any] = {"schema_version": 1, "tool": "sanitize", "status": "error", "reasons": [], "checks": []}
    try:
        text = child.model_from_stdin(required=True) or ""
        with staged.staged(flags.workspace, text, target="cuda", cache=flags.cache) as place:
            command = place.command("--warm-up", "0", "--calls", "1")
            wanted = [check for check in flags.checks.split(",") if check in memory_check.CHECKS]
            report["checks"] = [memory_check.check(command, what=what, scratch=place.scratch) for what in wanted]
            report["status"] = overall(report["checks"])
    except child.StdinError as error:
        report["reasons"] = [{"code": "task.stdin", "detail": str(error)}]
    except staged.NotBuilt as error:
        status = "error" if error.report["status"] == "error" else "failed"
        report |= {"status": status, "reasons": error.report["reasons"]}
    json.dump(report, stdout)
    stdout.write("\n")
    stdout.flush()
    return 0


def overall(checks: list[dict[str, Any]]) -> str:
    """found where any check found something, error where none could say anything, else clean."""
    states = {check["status"] for check in checks}
    if "found" in states:
        return "found"
    return "error" if "error" in states or not states else "clean"


if __name__ == "__main__":
    sys.exit(main())

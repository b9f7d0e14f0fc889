"""Looks for bad accesses, races and unwritten memory: `python -I sanitize.py --workspace DIR < {"model_py": …}`.

Covered: compute-sanitizer's memcheck, racecheck and initcheck over one call, on the task's own inputs; what it finds in
the reference as well is not held against the submission. Not covered: paths that these inputs do not take; races in
device memory between blocks (racecheck sees shared memory only); a submission that behaves while it is looked at.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gputools import memory_check, programs, staged
from referee import confine, signing
from taskrun import child

ONE_CALL: Final = ("--warm-up", "0", "--calls", "1")


def checked(place: staged.Staged, wanted: list[str], *, limit_s: float) -> list[dict[str, Any]]:
    """One result per check. Runs that only compile come first, without the tool: it slows compilers down as well."""
    command = place.command(*ONE_CALL)
    if place.module is None:
        scratch = str(place.scratch)
        programs.run(command, timeout_s=limit_s, env={"HOME": scratch, "TMPDIR": scratch})
    return [one_check(place, what, limit_s=limit_s) for what in wanted]


def one_check(place: staged.Staged, what: str, *, limit_s: float) -> dict[str, Any]:
    """A finding counts where the reference, run in the same way, shows none of its own."""
    began = time.monotonic()
    result = memory_check.check(place.command(*ONE_CALL), what=what, scratch=place.scratch, limit_s=limit_s)
    if result["status"] == "found":
        control = place.command(*ONE_CALL, "--reference")
        reference = memory_check.check(control, what=what, scratch=place.scratch, limit_s=limit_s)
        if reference["status"] != "clean":
            detail = f"{result['detail']}; the reference alone is not clean either: {reference['detail']}"
            result |= {"status": "error", "detail": detail}
    return result | {"seconds": round(time.monotonic() - began, 2)}


def main() -> int:
    parser = argparse.ArgumentParser(description="Run compute-sanitizer over a submission; prints a report as JSON.")
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--checks", default=",".join(memory_check.CHECKS))
    parser.add_argument("--limit-s", type=float, default=memory_check.LIMIT_S, help="for one run under the tool")
    flags = parser.parse_args()
    confine.set_dumpable(False)  # what runs below has the same uid, and must not find the key here
    stdout, key = signing.take_stdout(), b""
    report: dict[str, Any] = {"schema_version": 1, "tool": "sanitize", "status": "error", "reasons": [], "checks": []}
    try:
        text, key = child.asked_on_stdin(required=True)
        with staged.staged(flags.workspace, text or "", target="cuda", cache=flags.cache) as place:
            wanted = [check for check in flags.checks.split(",") if check in memory_check.CHECKS]
            report["checks"] = checked(place, wanted, limit_s=flags.limit_s)
            report["status"] = overall(report["checks"])
    except child.StdinError as error:
        report["reasons"] = [{"code": "task.stdin", "detail": str(error)}]
    except staged.NotBuilt as error:
        status = "error" if error.report["status"] == "error" else "failed"
        report |= {"status": status, "reasons": error.report["reasons"]}
    signing.write(stdout, report, key=key)
    return 0


def overall(checks: list[dict[str, Any]]) -> str:
    """found where any check found something, error where none could say anything, else clean."""
    states = {check["status"] for check in checks}
    if "found" in states:
        return "found"
    return "error" if "error" in states or not states else "clean"


if __name__ == "__main__":
    sys.exit(main())

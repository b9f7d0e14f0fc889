"""What a submission's kernels do on this GPU: `python -I inspect_kernels.py --workspace DIR < {"model_py": …}`.

Covered: time per kernel (CUPTI through torch's profiler), distance to the memory's speed, what ptxas gave each kernel;
with `--counters` hardware counters (ncu), with `--code NAME` machine code. What is not to be had is said, and the next
best is given. Not covered: the verdict; the submission runs unwatched beside the reference here.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gputools import counters, machine_code, programs, staged
from referee import confine, signing
from taskrun import child

RUN_LIMIT_S: Final = 240.0
CALLS: Final = 10


def inspect(place: staged.Staged, *, want_counters: bool, code: str | None) -> dict[str, Any]:
    """The report's parts; `sources` names where its figures come from, `missing` what could not be had and why."""
    report: dict[str, Any] = {"sources": ["ptxas"], "missing": [], "resources": place.report["kernels"]}
    measured = run_subject(place.command("--table", "--calls", str(CALLS)))
    if "error" in measured:
        report |= {"status": "failed", "reasons": [measured["error"]]}
        return report
    report |= {"status": "inspected", "calls": measured["calls"], "kernels": measured["kernels"]}
    if measured["kernels"]:
        report["sources"].insert(0, "CUPTI")
        report["roofline"] = roofline(measured)
    else:
        report["missing"].append("CUPTI recorded no kernel")
    if want_counters:
        try:
            report["counters"] = counters.collect(place.command("--calls", "1"), scratch=place.scratch)
            report["sources"].insert(0, "ncu")
        except counters.NoCounters as error:
            report["missing"].append(str(error))
    if code is not None:
        report |= machine_code_of(place, code)
    return report


def roofline(measured: dict[str, Any]) -> dict[str, Any]:
    """How far the kernels are from moving inputs, state and outputs exactly once at a copy's speed."""
    time_us = sum(row["per_call_us"] for row in measured["kernels"])
    least = sum(measured["bytes"].values())
    floor_us = least / measured["copy_bytes_per_s"] * 1e6
    return {
        "kernel_us": round(time_us, 2),
        "least_bytes": least,
        "copy_bytes_per_s": round(measured["copy_bytes_per_s"]),
        "floor_us": round(floor_us, 2),
        "share_of_bandwidth": round(floor_us / time_us, 4) if time_us else 0.0,
        "left": round(time_us / floor_us, 2) if floor_us else None,
    }


def machine_code_of(place: staged.Staged, name: str) -> dict[str, Any]:
    if place.module is None:
        return {"code": [], "code_missing": "there is no built module: Triton's code is not looked into"}
    try:
        return {"code": machine_code.read(place.module, wanted=name)}
    except machine_code.NoCode as error:
        return {"code": [], "code_missing": str(error)}


def run_subject(command: list[str]) -> dict[str, Any]:
    ran = programs.run(command, timeout_s=RUN_LIMIT_S)
    lines = ran.out.strip().splitlines()
    try:
        return dict(json.loads(lines[-1]))
    except (IndexError, ValueError):
        how = "did not end in time" if ran.code is None else f"ended with exit code {ran.code}"
        return {"error": {"code": "runtime.crash", "detail": f"the run {how}: {ran.err[-600:]}"}}


def main() -> int:
    parser = argparse.ArgumentParser(description="Say what a submission's kernels do; prints a report as JSON.")
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--counters", action="store_true")
    parser.add_argument("--code", metavar="NAME", help="kernels whose name contains NAME")
    flags = parser.parse_args()
    confine.set_dumpable(False)  # what runs below has the same uid, and must not find the key here
    stdout, key = signing.take_stdout(), b""
    report: dict[str, Any] = {"schema_version": 1, "tool": "inspect_kernels", "status": "error", "reasons": []}
    try:
        text, key = child.asked_on_stdin(required=True)
        with staged.staged(flags.workspace, text or "", target="cuda", cache=flags.cache) as place:
            report |= inspect(place, want_counters=flags.counters, code=flags.code)
    except child.StdinError as error:
        report["reasons"] = [{"code": "task.stdin", "detail": str(error)}]
    except staged.NotBuilt as error:
        status = "error" if error.report["status"] == "error" else "failed"
        report |= {"status": status, "reasons": error.report["reasons"]}
    signing.write(stdout, report, key=key)
    return 0


if __name__ == "__main__":
    sys.exit(main())

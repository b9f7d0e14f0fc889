"""compute-sanitizer over one call of a submission: bad accesses, races in shared memory, reads of unwritten memory."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from gputools import programs

LIMIT_S: Final = 240.0
FOUND: Final = 9
LINES: Final = 40
MARK: Final = "========="
CHECKS: Final = ("memcheck", "racecheck", "initcheck")
# Without torch's own allocator each tensor is an allocation, so that running over its end is seen.
ENVIRONMENT: Final = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "LC_ALL": "C"}
# torch, Triton and CUPTI ask the driver for entry points that it may not have; calls that fail and are dealt with are
# nobody's bad access.
FLAGS: Final = ("--error-exitcode", str(FOUND), "--print-limit", "10", "--report-api-errors", "no")
# A gap behind every allocation: tensors of whole pages else lie side by side, and what runs over one hits the next.
PADDING: Final = {"memcheck": ("--padding", "4096")}
# Where the host was at that time: of no use to whoever wrote a kernel.
_HOST: Final = ("Host Frame", "Saved host backtrace", "Host Backtrace")
_NOISE: Final = ("COMPUTE-SANITIZER", "LEAK SUMMARY")
_COUNT: Final = re.compile(
    r"^(?:ERROR|RACECHECK|INITCHECK) SUMMARY: (?P<count>[\d,.]+) (?:error|hazard)s?(?P<rest>.*)$"
)
_NOT_PRINTED: Final = "not printed"
_HAZARD: Final = ("Error: Race reported", "Error: Potential")


def check(argv: Sequence[str], *, what: str, scratch: Path, limit_s: float = LIMIT_S) -> dict[str, Any]:
    """`status` is clean, found or error; `lines` are what the tool says about the submission.

    `argv` is subject.py: clean needs its word that the submission's forward ran to its end.
    """
    tool = programs.find("compute-sanitizer")
    if tool is None:
        return _result(what, "error", "compute-sanitizer is not installed")
    environment = {**ENVIRONMENT, "HOME": str(scratch), "TMPDIR": str(scratch)}
    command = [tool, "--tool", what, *FLAGS]
    ran = programs.run([*command, *PADDING.get(what, ()), *argv], timeout_s=limit_s, env=environment)
    if count(ran.said) is None and "padding" in ran.said:  # an option that this version does not know
        ran = programs.run([*command, *argv], timeout_s=limit_s, env=environment)
    lines = findings(ran.said)
    if ran.code is None:
        return _result(what, "error", f"took longer than {limit_s:.0f} s", lines)
    number = count(ran.said)
    if number or ran.code == FOUND:
        return _result(what, "found", summary(ran.said) or "errors were found", lines)
    if number is None:
        return _result(what, "error", trouble(ran.said) or f"no summary, exit code {ran.code}", lines)
    stopped = not_run(ran.out)
    if ran.code != 0 or stopped:
        return _result(what, "error", f"the call did not get to its end: {stopped or f'exit code {ran.code}'}", lines)
    return _result(what, "clean", summary(ran.said))


def _result(what: str, status: str, detail: str, lines: Sequence[str] = ()) -> dict[str, Any]:
    return {"check": what, "status": status, "detail": detail, "lines": list(lines)}


def findings(said: str) -> list[str]:
    """Without the host's frames, each of which older versions continue on a line of its own."""
    kept: list[str] = []
    in_host = False
    for line in _marked(said):
        in_host = line.startswith(_HOST) or (in_host and line.startswith("in /"))
        if line and not in_host and not line.startswith(_NOISE):
            kept.append(line)
    return kept[:LINES]


def summary(said: str) -> str:
    """The line with the count of errors or hazards; empty where the tool did not get to its end."""
    found = [line for line in _marked(said) if (match := _COUNT.match(line)) and _NOT_PRINTED not in match["rest"]]
    return found[-1] if found else ""


def count(said: str) -> int | None:
    """Errors or hazards, also those that were not printed; None where no total was told."""
    match = _COUNT.match(summary(said))
    return int(re.sub(r"[,.]", "", match["count"])) if match else None


def trouble(said: str) -> str:
    """What kept the tool from its work: no such device, a program that ended before it began, an internal error."""
    told = [line for line in _marked(said) if line.startswith(("Error", "Internal", "Target application"))]
    return next((line[:300] for line in told if not line.startswith(_HAZARD)), "")


def not_run(out: str) -> str:
    """Why subject.py's forward did not run to its end, from its standard output; empty where it did."""
    for line in reversed(out.splitlines()):
        if not line.startswith("{"):
            continue
        try:
            report = json.loads(line)
        except ValueError:
            continue
        if "ran" in report:
            return ""
        if isinstance(error := report.get("error"), dict):
            return f"{error.get('code', '')}: {error.get('detail', '')}"[:300]
    return "it did not answer"


def _marked(said: str) -> list[str]:
    return [line.removeprefix(MARK).strip() for line in said.splitlines() if line.startswith(MARK)]

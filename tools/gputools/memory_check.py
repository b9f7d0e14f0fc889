"""compute-sanitizer over one call of a submission: bad accesses, races in shared memory, reads of unwritten memory."""

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
ENVIRONMENT: Final = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
# Where the host was at that time: of no use to whoever wrote a kernel.
_NOISE: Final = ("Host Frame", "Saved host backtrace", "Host Backtrace", "LEAK SUMMARY")


def check(argv: Sequence[str], *, what: str, scratch: Path) -> dict[str, Any]:
    """`status` is clean, found or error; `lines` are what the tool says about the submission."""
    tool = programs.find("compute-sanitizer")
    if tool is None:
        return {"check": what, "status": "error", "detail": "compute-sanitizer is not installed", "lines": []}
    command = [tool, "--tool", what, "--error-exitcode", str(FOUND), "--print-limit", "10", *argv]
    environment = {**ENVIRONMENT, "HOME": str(scratch), "TMPDIR": str(scratch)}
    ran = programs.run(command, timeout_s=LIMIT_S, env=environment)
    lines = findings(ran.said)
    if ran.code is None:
        return {"check": what, "status": "error", "detail": f"took longer than {LIMIT_S:.0f} s", "lines": lines}
    if ran.code == FOUND:
        return {"check": what, "status": "found", "detail": summary(ran.said), "lines": lines}
    if ran.code == 0 and summary(ran.said):
        return {"check": what, "status": "clean", "detail": summary(ran.said), "lines": []}
    return {"check": what, "status": "error", "detail": f"exit code {ran.code}", "lines": lines}


def findings(said: str) -> list[str]:
    marked = [line.removeprefix(MARK).rstrip() for line in said.splitlines() if line.startswith(MARK)]
    useful = [line for line in marked if line.strip() and not any(noise in line for noise in _NOISE)]
    return [line.strip() for line in useful if not line.strip().startswith("COMPUTE-SANITIZER")][:LINES]


def summary(said: str) -> str:
    """The line with the count of errors or hazards; empty where the tool did not get to its end."""
    found = [line for line in said.splitlines() if line.startswith(MARK) and "SUMMARY" in line]
    return found[-1].removeprefix(MARK).strip() if found else ""

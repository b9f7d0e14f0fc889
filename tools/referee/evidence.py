"""What a report keeps of a judgement, and the evidence about the submission's process that the referee takes from /proc itself."""

import sys
from pathlib import Path
from typing import Any, Final

from referee import timing
from referee.correctness import Trial
from referee.outcome import Rejected
from referee.session import Session

OPERATORS: Final = 200


def collect(session: Session, trial: Trial | None, times: timing.Times | None) -> dict[str, Any]:
    """Everything is small: samples and names, no tensors."""
    found: dict[str, Any] = {"marks_s": session.marks, "task_sha256": session.options.task_sha256}
    if trial is not None:
        found["outputs_checked"] = trial.checked
        found["float64_oracle"] = trial.notes.get("float64_oracle")
        found["controls_rejected"] = trial.controls.rejected
        found["operators"] = sorted(trial.operators)[:OPERATORS]
        found["tolerance"] = [
            {"largest": tolerance.largest, "rms": tolerance.rms, "reference_rms": tolerance.reference.rms}
            for tolerance in trial.tolerances.get(1.0, [])
        ]
        found["filter"] = trial.notes.get("filter")
    if times is not None and times.samples["submission"]:
        found["timing"] = timing.report(times)
    return found


def check_mappings(trial: Trial) -> None:
    """Under strict, code that is mapped executable comes from the system, Python, torch, or the submission's own build."""
    if trial.policy != "strict":
        return
    allowed = (sys.prefix, sys.base_prefix, "/usr", "/lib", "/lib64", "/opt", *trial.notes.get("own_code", ()))
    for line in Path(f"/proc/{trial.submission.pid}/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) < 6 or "x" not in fields[1] or not fields[5].startswith("/"):
            continue
        if not fields[5].startswith(allowed):
            raise Rejected("policy.foreign_code", f"code from {fields[5]} is mapped, which is not built from the submission's sources")


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"

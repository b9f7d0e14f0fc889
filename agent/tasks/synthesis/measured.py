"""Times that tools/time_tasks.py has measured: where they are given they decide, and they stand beside the set.

It may have found a time in the band with another batch size than the candidate's; then that is the task.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.errors import ConfigError
from agent.tasks.synthesis.candidate import Candidate, with_batch

LOW_MS, HIGH_MS = 1.0, 100.0
NO_MODULE: Final = "No module named"  # transformers on a machine without it: that says nothing about the task


@dataclass(frozen=True)
class Measured:
    """Rows of times by the hash of the task's text."""

    rows: Mapping[str, Mapping[str, Any]]

    def sized(self, candidate: Candidate) -> Candidate:
        """The candidate as it was measured. Raises ConfigError where the times are of another text."""
        row = self.rows.get(candidate.sha256, {})
        if "batch_size" not in row or "error" in row:
            return candidate
        made = with_batch(candidate, int(row["batch_size"]))
        if made.sha256 != row.get("resized_sha256"):
            raise ConfigError(f"the times of {candidate.id} are of another text", hint="measure them again")
        return made

    def beside(self, candidate: Candidate, measured_as: str) -> Mapping[str, Any] | None:
        """The row of times for a task of the set, which was measured under the hash `measured_as`."""
        row = self.rows.get(measured_as)
        if row is None:
            return None
        return {name: value for name, value in row.items() if name != "resized_sha256"} | {"sha256": candidate.sha256}

    def objection(self, sha256: str) -> tuple[str, str] | None:
        """Why a task cannot stay: a reason's code and detail. None for one that can, and for one not measured."""
        row = self.rows.get(sha256)
        if row is None or NO_MODULE in str(row.get("error")):
            return None
        device = row.get("device", "the device")
        if error := row.get("error"):
            return "task.raises", f"on {device}: {error}"
        eager_ms = float(row.get("eager_ms", 0.0))
        if eager_ms > HIGH_MS or eager_ms < LOW_MS:
            code = "task.too_slow" if eager_ms > HIGH_MS else "task.too_fast"
            return code, f"eager takes {eager_ms:.4g} ms on {device}"
        if row.get("equal") is False:
            return "task.compile_differs", f"on {device} torch.compile gives another output"
        return None


def read_times(path: Path | None) -> Measured:
    """Raises ConfigError for a file that is none."""
    if path is None:
        return Measured({})
    found: dict[str, Mapping[str, Any]] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            found[str(row["sha256"])] = row
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{path}:{number} is no row of times", hint="tools/time_tasks.py writes them") from None
    return Measured(found)

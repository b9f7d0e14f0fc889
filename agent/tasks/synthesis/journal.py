"""What has been examined so far, one line each; an interrupted synthesis reads it and goes on.

The first line holds what the set is made from: another seed, mix or version is another set. A torn last line is a
candidate that is examined again.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from agent.errors import ConfigError, RecordError
from agent.tasks.admission.examiner import CandidateReport

SUFFIX: Final = ".journal.jsonl"


def journal_path(output: Path) -> Path:
    return output.with_name(output.name + SUFFIX)


class Journal:
    """Reports by the hash of the examined text; appended to as they come. `measured` holds the same in order."""

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self.path = path
        self.reports: dict[str, CandidateReport] = {}
        self._read(header)

    def add(self, sha256: str, report: CandidateReport) -> None:
        """One line, on the disk when this returns."""
        self.reports[sha256] = report
        self._append({"sha256": sha256, "report": report.model_dump(mode="json")})

    def _read(self, header: Mapping[str, Any]) -> None:
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._append({"header": dict(header)})
            return
        except OSError as error:
            raise RecordError(f"cannot read {self.path}: {error.strerror}") from error
        self._check(lines[0], header)
        for line in lines[1:-1]:
            self._take(line)
        if lines[-1]:  # torn: it must not run into the next line
            kept = b"\n".join(lines[:-1]) + b"\n"
            self.path.write_bytes(kept)

    def _check(self, line: bytes, header: Mapping[str, Any]) -> None:
        try:
            before = json.loads(line)["header"]
        except (ValueError, KeyError, TypeError):
            raise ConfigError(
                f"{self.path} is no journal of a synthesis", hint="move it away, or choose another -o"
            ) from None
        # More or fewer tasks of the same candidates are the same synthesis.
        different = sorted(key for key in {*before, *header} - {"count"} if before.get(key) != header.get(key))
        if different:
            raise ConfigError(
                f"{self.path} belongs to another synthesis: {', '.join(different)} differ",
                hint="choose another -o, or remove the journal to start again",
            )

    def _take(self, line: bytes) -> None:
        try:
            data = json.loads(line)
            self.reports[data["sha256"]] = CandidateReport.model_validate(data["report"])
        except (ValueError, KeyError, TypeError, ValidationError):
            return

    def _append(self, data: Mapping[str, Any]) -> None:
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(data) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RecordError(f"cannot write {self.path}: {error.strerror}", full=True) from error

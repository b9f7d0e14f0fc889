"""The verdicts of one run on disk: the present one in verdict.json, every one that it replaced in verdicts/.

Covers: a kill or a power loss at any moment leaves the old verdict or the new one in verdict.json, and every verdict
that ever stood there in verdicts/; what was judged but not put in place yet is found again. Does not cover: two
writers; the run folder's lock does.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.errors import RecordError
from agent.trajectory.folder import RunFolder
from agent.trajectory.writer import record_error
from agent.view.verdicts import Record, read_record, record_of

PRESENT: Final = "verdict.json"
ORIGINAL: Final = "original.json"


@dataclass(frozen=True)
class VerdictFiles:
    """The files of one run."""

    folder: RunFolder

    @property
    def past(self) -> Path:
        return self.folder.path / "verdicts"

    def present(self) -> Record | None:
        """None while the run is owed one. Raises RecordError for a file that is no verdict."""
        try:
            return read_record(self.folder.path / PRESENT)
        except ValueError as error:
            raise RecordError(f"{self.folder.path / PRESENT}: {error}") from error

    def replace(self, data: dict[str, Any]) -> Record:
        """Make `data` the present verdict, after the present one was kept. Raises RecordError.

        `data` gets the key `replaces`: the name, in verdicts/, of what it replaced.
        """
        record = data | {"replaces": self._keep()}
        name = self._free_name()
        RunFolder(self.past).write_json(name, record)
        self._sync()
        self.folder.write_json(PRESENT, record)
        return record_of(record)

    def interrupted(self, ours: Callable[[Mapping[str, Any]], bool]) -> dict[str, Any] | None:
        """A verdict that was written, but did not get into its place, and whose judge is `ours`."""
        present = self._bytes(self.folder.path / PRESENT)
        for path in sorted(self.past.glob("[!.]*.json"), reverse=True):
            try:
                data = json.loads(self._bytes(path))
            except (ValueError, RecursionError):
                continue
            judge = data.get("judge") if isinstance(data, dict) else None
            if not isinstance(judge, dict) or not ours(judge):
                continue
            replaced = self.past / Path(str(data.get("replaces"))).name
            if replaced.is_file() and self._bytes(replaced) == present:
                found: dict[str, Any] = data
                return found
        return None

    def finish(self, data: dict[str, Any]) -> Record:
        """Put in place what `interrupted` found."""
        self.folder.write_json(PRESENT, data)
        return record_of(data)

    def _keep(self) -> str:
        """The present verdict's name in verdicts/, where it is by then: the first one is original.json."""
        present = self._bytes(self.folder.path / PRESENT)
        try:
            self.past.mkdir(exist_ok=True)
        except OSError as error:
            raise record_error(self.past, error) from error
        for path in sorted(self.past.glob("[!.]*.json")):
            if self._bytes(path) == present:
                return path.name
        name = self._free_name() if (self.past / ORIGINAL).exists() else ORIGINAL
        RunFolder(self.past).write_text(name, present.decode("utf-8"))
        self._sync()
        return name

    def _free_name(self) -> str:
        """UTC to the second; a counter where two fall into the same one."""
        stamp = time.strftime("%Y-%m-%dT%H%M%S", time.gmtime())
        names = [f"{stamp}.json", *(f"{stamp}-{number:02d}.json" for number in range(1, 100))]
        free = next((name for name in names if not (self.past / name).exists()), None)
        if free is None:
            raise RecordError(f"{self.past} has a hundred verdicts of one second")
        return free

    def _sync(self) -> None:
        """A new name is on disk before verdict.json is replaced."""
        try:
            fd = os.open(self.past, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise record_error(self.past, error) from error

    def _bytes(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except OSError as error:
            raise record_error(path, error) from error

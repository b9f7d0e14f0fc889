"""The folder of one search: settings and task, which run belongs to which try, and what all of it came to.

Covers: whatever ended the command, `agent optimize --resume FOLDER` goes on: tries that have ended are taken as they
are, those that had begun go on, the others begin, and the winner is judged again unless it was. A second process is
refused.
"""

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agent.batch.search import Confirmation, Tried, search_record
from agent.config import Config, expanded, load_config
from agent.errors import ConfigError, InUse, RecordError
from agent.judging.reports import Verdict
from agent.locks import locked
from agent.tasks.task import Task, text_sha256
from agent.trajectory.folder import RunFolder, dated_name
from agent.trajectory.searched import RECORD, SETTINGS
from agent.trajectory.writer import record_error


@dataclass
class SearchFolder:
    """Made by `create` or `open`; `run_for` may be called from any thread."""

    path: Path
    config: Config
    task: Task
    _runs: dict[int, str] = field(default_factory=dict)
    _stored: dict[str, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def create(cls, task: Task, config: Config) -> "SearchFolder":
        """A new folder below the runs folder. Raises ConfigError, RecordError where the disk is full."""
        output = expanded(Path(config.run.output)).absolute()
        path = output / dated_name(task.name, kind="-search")
        try:
            path.mkdir(parents=True)
        except OSError as error:
            reason = error.strerror or str(error)
            hint = "choose another one with -o"
            raise ConfigError(f"cannot write in the runs folder {output}: {reason}", hint=hint) from error
        folder = cls(path, config, task)
        RunFolder(path).write_json(SETTINGS, config.model_dump(mode="json"))
        folder.write((), ())
        return folder

    @classmethod
    def open(cls, path: Path) -> "SearchFolder":
        """Raises ConfigError where it cannot be gone on with."""
        path = expanded(path).absolute()
        if not (path / SETTINGS).is_file():
            hint = "go on with its runs, one by one"
            raise ConfigError(f"{path} was made by an older version, which did not keep its settings", hint=hint)
        config = load_config(files=(path / SETTINGS,))
        try:
            stored = json.loads((path / RECORD).read_bytes())
            about = stored["task"]
            task = Task(path=Path(about["path"]), name=about["id"], text=about["text"], sha256=about["sha256"])
            runs = {int(number): str(name) for number, name in stored["runs"].items()}
            intact = text_sha256(task.text) == task.sha256
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(f"{path / RECORD} is damaged: {error!r}") from error
        if not intact:
            raise ConfigError(f"{path / RECORD} is damaged: the text does not have the recorded sha256")
        return cls(path, config, task, runs, stored)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Raises InUse where another process is at work on the search."""
        with contextlib.ExitStack() as stack:
            try:
                held = stack.enter_context(locked(self.path / ".lock"))
            except OSError as error:
                raise record_error(self.path / ".lock", error) from error
            if held is None:
                raise InUse(f"{self.path} is in use by another process")
            yield

    def run_for(self, number: int) -> tuple[RunFolder, bool]:
        """The run of a try, and whether it was there before; a new one is recorded before it begins."""
        with self._lock:
            if (name := self._runs.get(number)) and (self.path / name).is_dir():
                return RunFolder.open(self.path / name), True
            run = RunFolder.create(self.path, self.task, self.config)
            self._runs[number] = run.run_id
            self._stored["runs"] = {str(key): name for key, name in sorted(self._runs.items())}
            RunFolder(self.path).write_json(RECORD, self._stored)
            return run, False

    def write(self, done: Sequence[Tried], confirmations: Sequence[Confirmation], *, complete: bool = False) -> None:
        """The record; `complete`: nothing is left to be done. Raises RecordError."""
        with self._lock:
            record = search_record(self.config, self.task, done, confirmations)
            task = record["task"] | {"path": str(self.task.path), "text": self.task.text}
            runs = {str(key): name for key, name in sorted(self._runs.items())}
            self._stored = record | {"task": task, "runs": runs, "complete": complete}
            RunFolder(self.path).write_json(RECORD, self._stored)

    def confirmed(self, done: Sequence[Tried]) -> list[Confirmation] | None:
        """The last judgements of a search that was complete; None where they are owed."""
        if not self._stored.get("complete"):
            return None
        tries = {tried.attempt.number: tried for tried in done}
        try:
            return [
                Confirmation(tries[item["try"]], Verdict.model_validate(item["verdict"]))
                for item in self._stored["confirmations"]
            ]
        except (KeyError, TypeError, ValidationError) as error:
            raise RecordError(f"{self.path / RECORD} is damaged: {error!r}") from error

    def discard_empty(self) -> None:
        """Remove a search in which nothing has begun."""
        if not any(entry.is_dir() for entry in self.path.iterdir()):
            for name in (RECORD, SETTINGS, ".lock"):
                (self.path / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self.path.rmdir()

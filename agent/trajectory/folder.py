"""One run's folder: made in one step, locked while a process writes to it, its small files replaced atomically."""

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.config import Config, expanded, load_config
from agent.errors import ConfigError, InUse, RecordError
from agent.locks import locked
from agent.tasks.task import Task, text_sha256
from agent.trajectory.writer import FULL_ERRNOS, record_error

NAME_CHARS: Final = 40


@dataclass(frozen=True)
class RunFolder:
    """Paths below one run; what each file holds is said in runs/README.md."""

    path: Path

    @classmethod
    def create(cls, output: Path, task: Task, config: Config) -> "RunFolder":
        """A new folder below `output`, made under a hidden name and renamed, so that no half-made run is ever seen.

        Raises ConfigError where `output` cannot be written, RecordError where the disk is full.
        """
        output = expanded(output).absolute()
        hidden = output / f".new-{secrets.token_hex(8)}"
        try:
            output.mkdir(parents=True, exist_ok=True)
            hidden.mkdir()
            folder = cls(hidden)
            folder.workspace.mkdir()
            folder.logs.mkdir()
            folder.write_json("config.json", config.model_dump(mode="json"))
            folder.write_json("task.json", _task_record(task))
            return cls(_claim(hidden, output, task.name))
        except OSError as error:
            shutil.rmtree(hidden, ignore_errors=True)
            raise _create_error(output, error) from error
        except RecordError:
            shutil.rmtree(hidden, ignore_errors=True)
            raise

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """An existing run. Raises ConfigError when `path` is none."""
        folder = cls(expanded(path).absolute())
        for name in ("config.json", "task.json"):
            if not (folder.path / name).is_file():
                raise ConfigError(f"{path} is not a run folder", hint=f"it has no {name}")
        return folder

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def graph(self) -> Path:
        return self.path / "graph.sqlite"

    @property
    def workspace(self) -> Path:
        return self.path / "workspace"

    @property
    def best(self) -> Path:
        return self.path / "best"

    @property
    def seed(self) -> Path:
        return self.path / "seed"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def discard(self) -> None:
        """Remove a run that never began."""
        shutil.rmtree(self.path, ignore_errors=True)

    def forget_ending(self) -> None:
        """Remove what was written when the run had ended: its log holds that, and verdicts/ what was judged later."""
        for name in ("verdict.json", "report.md", "report.html"):
            (self.path / name).unlink(missing_ok=True)

    def config(self) -> Config:
        return load_config(files=(self.path / "config.json",))

    def task(self) -> Task:
        """The task as it was when the run began; the original file is not looked at."""
        try:
            record = json.loads((self.path / "task.json").read_bytes())
            task = Task(path=Path(record["path"]), name=record["id"], text=record["text"], sha256=record["sha256"])
            intact = text_sha256(task.text) == task.sha256
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(f"{self.path / 'task.json'} is damaged: {error!r}") from error
        if not intact:
            raise ConfigError(f"{self.path / 'task.json'} is damaged: the text does not have the recorded sha256")
        return task

    def write_json(self, name: str, data: Any) -> None:
        """Replace one file atomically. Raises RecordError."""
        self.write_text(name, json.dumps(data, indent=2, ensure_ascii=True) + "\n")

    def write_text(self, name: str, text: str) -> None:
        """Replace one file atomically (temporary name, fsync, rename). Raises RecordError."""
        target = self.path / name
        temporary = target.with_name(f".{name}.{secrets.token_hex(4)}")
        try:
            with temporary.open("w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise record_error(target, error) from error

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Held by the one process that writes this run; the kernel drops it when that process ends, however it ends."""
        with contextlib.ExitStack() as stack:
            try:
                held = stack.enter_context(locked(self.path / ".lock"))
            except OSError as error:
                raise record_error(self.path / ".lock", error) from error
            if held is None:
                raise InUse(f"{self.path} is in use by another process")
            yield


def dated_name(task_name: str, *, kind: str = "") -> str:
    """A new folder's name: when it was made, what for, and chance; `kind` stands behind the task."""
    return f"{time.strftime('%Y-%m-%dT%H%M')}-{slug_of(task_name)}{kind}-{secrets.token_hex(4)}"


def slug_of(task_name: str, *, most: int = NAME_CHARS) -> str:
    """The part of a task's name that can stand in a folder's name."""
    return re.sub(r"[^\w.-]+", "-", task_name).strip("-.")[:most] or "task"


def _claim(hidden: Path, output: Path, task_name: str) -> Path:
    while True:
        target = output / dated_name(task_name)
        try:
            hidden.rename(target)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        else:
            return target


def _task_record(task: Task) -> dict[str, str]:
    return {"id": task.name, "path": str(task.path), "sha256": task.sha256, "text": task.text}


def _create_error(output: Path, error: OSError) -> ConfigError | RecordError:
    if error.errno in FULL_ERRNOS:
        return record_error(output, error)
    reason = error.strerror or str(error)
    return ConfigError(f"cannot write in the runs folder {output}: {reason}", hint="choose another one with -o")

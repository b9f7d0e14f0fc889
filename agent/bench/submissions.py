"""Which submission belongs to a task: files of a folder, or the episodes of a collection.

A folder holds, for a task `level1/3_Softmax`, one of: level1/3_Softmax/ (a workspace with model_new.py, kernels/),
level1/3_Softmax.py, or the same without the level where that is unambiguous. Nothing of it is executed here.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from agent.errors import ConfigError
from agent.judging.submission import ENTRY
from agent.tasks.task import Task


class Source(Protocol):
    """Where submissions come from."""

    def find(self, task: Task) -> Path | None:
        """A workspace folder or a single file; None where there is none."""
        ...


@dataclass(frozen=True)
class FolderSource:
    """`names` are all tasks of the suite: a name without its level must belong to one of them only."""

    folder: Path
    names: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path, tasks: Sequence[Task]) -> "FolderSource":
        """Raises ConfigError where the folder is none."""
        if not folder.is_dir():
            raise ConfigError(f"{folder} is not a folder", hint="give a folder with one submission per task id")
        return cls(folder, tuple(task.name for task in tasks))

    def find(self, task: Task) -> Path | None:
        short = PurePosixPath(task.name).name
        unique = sum(PurePosixPath(name).name == short for name in self.names) == 1
        for name in (task.name, *((short,) if unique else ())):
            for path in (self.folder / name, self.folder / f"{name}.py"):
                if path.is_file() or (path / ENTRY).is_file():
                    return path
        return None


@dataclass(frozen=True)
class RunsSource:
    """Task text's sha256 -> the judged best submission of its run."""

    best: Mapping[str, Path]

    def find(self, task: Task) -> Path | None:
        return self.best.get(task.sha256)


def submission_sha256(path: Path | None) -> str:
    """Over names and bytes of what the judge would read; empty for None."""
    digest = hashlib.sha256()
    if path is None:
        return ""
    files = [path] if path.is_file() else [path / ENTRY, *sorted((path / "kernels").glob("*"))]
    for file in files:
        if file.is_file() and not file.is_symlink():
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()

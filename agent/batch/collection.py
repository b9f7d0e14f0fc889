"""A collection's folder: its plan in collection.json, its lock, and the two append-only lists attempts and refusals.

Covers: a second driver is refused, and a resumed command must mean the same work. What each run came to is not here but
in the run folders, which `scan.py` reads.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from agent import __version__
from agent.batch.json_lines import AttemptLine, JsonLines, RefusalLine
from agent.config import Config, expanded
from agent.errors import ConfigError, InUse
from agent.locks import locked
from agent.tasks.task import Task
from agent.trajectory.folder import RunFolder, slug_of

PLAN: Final = "collection.json"
LOCK: Final = ".lock"
SLUG_CHARS: Final = 60
# How the server is reached and how patiently may change between two commands; what is asked for may not.
_REACHED: Final = ("base_url", "api_key_env", "timeout_s", "max_attempts", "max_wait_s")
FREE_SETTINGS: Final = frozenset(f"backend.{name}" for name in (*_REACHED, "local"))


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TaskEntry(_Frozen):
    """One task of the plan; `folder` is relative to the collection, `source` is where the text came from."""

    id: str
    sha256: str
    folder: str
    source: str


class Plan(_Frozen):
    """collection.json: written once, checked by every later command."""

    schema_version: Literal[1] = 1
    agent_version: str
    settings: Config
    samples: int
    search: dict[str, Any] | None = None
    tasks: tuple[TaskEntry, ...]


def make_plan(tasks: Sequence[Task], *, settings: Config, samples: int, search: dict[str, Any] | None = None) -> Plan:
    """Raises ConfigError for two tasks with one id."""
    entries = tuple(
        TaskEntry(id=task.name, sha256=task.sha256, folder=f"tasks/{_folder_name(task)}", source=str(task.path))
        for task in tasks
    )
    seen: set[str] = set()
    for entry in entries:
        if entry.id in seen:
            raise ConfigError(f"two tasks have the id {entry.id}", hint="give each task an id of its own")
        seen.add(entry.id)
    run = settings.run.model_copy(update={"samples": 1, "output": "", "confirm": False})
    normal = settings.model_copy(update={"run": run})
    return Plan(agent_version=__version__, settings=normal, samples=samples, search=search, tasks=entries)


@dataclass(frozen=True)
class Collection:
    """Paths and records of one collection."""

    path: Path

    @classmethod
    def at(cls, path: Path) -> "Collection":
        return cls(expanded(path).absolute())

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Held by the one driver. Raises RecordError that names the other, ConfigError where it cannot be made."""
        with contextlib.ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                fd = stack.enter_context(locked(self.path / LOCK))
            except OSError as error:
                reason = error.strerror or str(error)
                hint = "choose another folder with -o"
                raise ConfigError(f"cannot write in {self.path}: {reason}", hint=hint) from error
            if fd is None:
                pid = (self.path / LOCK).read_text(encoding="ascii", errors="replace").strip() or "unknown"
                hint = "wait for it, or choose another folder"
                raise InUse(f"{self.path} is being worked on by process {pid}", hint=hint)
            with contextlib.suppress(OSError):  # a full disk: the lock holds all the same
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
            yield

    def settle_plan(self, plan: Plan) -> Plan:
        """Write the plan, or check it against the one that is there. Raises ConfigError that names what differs."""
        known = self.read_plan()
        if known is None:
            RunFolder(self.path).write_json(PLAN, plan.model_dump(mode="json"))
            return plan
        _check_same(known, plan, self.path)
        return known

    def read_plan(self) -> Plan | None:
        """None where there is no collection yet. Raises ConfigError where there is something else."""
        path = self.path / PLAN
        try:
            data = json.loads(path.read_bytes())
            return Plan.model_validate(data)
        except FileNotFoundError:
            others = (
                sorted(p.name for p in self.path.iterdir() if not p.name.startswith(".")) if self.path.is_dir() else []
            )
            if others:
                hint = "choose a new folder with -o"
                raise ConfigError(f"{self.path} is no collection: it holds {others[0]}", hint=hint) from None
            return None
        except (OSError, ValueError, RecursionError) as error:  # ValueError: pydantic's too
            raise ConfigError(f"{path} is damaged: {' '.join(str(error).split())[:200]}") from error

    @property
    def attempts(self) -> JsonLines:
        return JsonLines(self.path / "attempts.jsonl", AttemptLine)

    @property
    def refusals(self) -> JsonLines:
        return JsonLines(self.path / "refused.jsonl", RefusalLine)

    def sample_folder(self, entry: TaskEntry, sample: int) -> Path:
        return self.path / entry.folder / str(sample)


def _folder_name(task: Task) -> str:
    """Readable, and different for every id and text."""
    slug = slug_of(task.name, most=SLUG_CHARS)
    key = hashlib.sha256(f"{task.name}\0{task.sha256}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{slug}-{key[:8]}"


def _check_same(known: Plan, asked: Plan, path: Path) -> None:
    hint = "give the same command, or choose another folder with -o"
    if known.samples != asked.samples:
        raise ConfigError(f"{path} collects {known.samples} samples per task, not {asked.samples}", hint=hint)
    if known.search != asked.search:
        raise ConfigError(f"{path} was begun with another search: {known.search}, not {asked.search}", hint=hint)
    before, now = _flat(known.settings), _flat(asked.settings)
    differing = [key for key in now if before.get(key) != now[key] and key not in FREE_SETTINGS]
    if differing:
        key = differing[0]
        raise ConfigError(f"{path} was begun with {key} = {before.get(key)!r}, not {now[key]!r}", hint=hint)
    _check_tasks(known, asked, path, hint)


def _check_tasks(known: Plan, asked: Plan, path: Path, hint: str) -> None:
    before = {entry.id: entry.sha256 for entry in known.tasks}
    now = {entry.id: entry.sha256 for entry in asked.tasks}
    for id, sha256 in now.items():
        if id in before and before[id] != sha256:
            raise ConfigError(f"the text of task {id} is not the one that {path} was begun with", hint=hint)
    for id in (*(id for id in now if id not in before), *(id for id in before if id not in now)):
        which = "was begun without" if id in now else "was begun with"
        raise ConfigError(f"{path} {which} task {id}", hint=hint)


def _flat(settings: Config) -> dict[str, Any]:
    sections = settings.model_dump(mode="json")
    return {f"{section}.{key}": value for section, values in sections.items() for key, value in values.items()}

"""Task sets: a folder, one model.py, JSONL or parquet, a KernelBench checkout, or shipped examples by name.

Nothing of a source is imported or executed: each text is parsed, and what is no task is refused with its place while
the rest goes on.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from agent.assets import asset
from agent.config import expanded
from agent.errors import ConfigError, TaskError
from agent.tasks.candidates import Candidate, Candidates, Found, Refusal, read_candidate
from agent.tasks.rows import read_jsonl, read_parquet
from agent.tasks.task import Task, check_text, load_task, task_name, text_sha256

LEVELS: Final = ("level1", "level2", "level3", "level4")
EXAMPLES: Final = "examples"
NVIDIA_CONTROL: Final = Path("/dev/nvidiactl")
_PROBLEM: Final = re.compile(r"[0-9]+(?=_.*\.py$)")
_FILES: Final[Mapping[str, Callable[[Path], Candidates]]] = {
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".parquet": read_parquet,
}


@dataclass(frozen=True)
class TaskSet:
    """`tasks` in the source's order, each `name` once; `refused` says what else was there and why it is no task."""

    tasks: tuple[Task, ...]
    refused: tuple[Refusal, ...] = ()


def load_tasks(source: str | Path, *, names: Sequence[str] = ()) -> TaskSet:
    """The tasks of `source`, only those whose id is one of `names` or matches it as a pattern (`level1/*`).

    A path goes before a name of a shipped example; several names are separated by commas, `examples` means all.
    Raises ConfigError for an unreadable source, an id with two texts, a name that matches nothing, and an empty set.
    """
    return load_rows(source, names=names)[0]


def load_rows(source: str | Path, *, names: Sequence[str] = ()) -> tuple[TaskSet, tuple[Mapping[str, Any], ...]]:
    """The same, and for each task what else its row holds; empty where the source is no file of rows."""
    collector = _Collector()
    selection = _Selection(tuple(names))
    for found in _candidates(source):
        if isinstance(found, Refusal):
            collector.refused.append(found)
        elif selection.takes(found.id):
            collector.add(found)
    selection.check(source)
    if not collector.tasks:
        raise ConfigError(f"there is no task in {source}", hint=_why_empty(collector.refused))
    return TaskSet(tuple(collector.tasks), tuple(collector.refused)), tuple(collector.columns)


@dataclass
class _Collector:
    """Checks each candidate, and keeps ids and texts apart."""

    tasks: list[Task] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    columns: list[Mapping[str, Any]] = field(default_factory=list)
    _ids: dict[str, Task] = field(default_factory=dict)
    _texts: dict[str, Task] = field(default_factory=dict)

    def add(self, found: Candidate) -> None:
        if problem := _unusable_id(found.id):
            self.refused.append(Refusal(str(found.where), "not_a_task", problem))
            return
        sha256 = text_sha256(found.text)
        if twin := self._twin(found, sha256):
            self._refuse_twin(found, twin, sha256)
            return
        try:
            check_text(found.text, label=found.where.name)
        except TaskError as error:
            self.refused.append(Refusal(str(found.where), "not_a_task", error.message))
            return
        task = Task(path=found.where, name=found.id, text=found.text, sha256=sha256)
        self.tasks.append(task)
        self.columns.append(found.columns)
        self._ids[found.id] = task
        self._texts.setdefault(sha256, task)

    def _twin(self, found: Candidate, sha256: str) -> Task | None:
        # Two ids for one text are two tasks where a person chose the ids, not where they are only row numbers.
        return self._ids.get(found.id) or (None if found.named else self._texts.get(sha256))

    def _refuse_twin(self, found: Candidate, twin: Task, sha256: str) -> None:
        if twin.sha256 != sha256:
            places = f"{twin.path} and {found.where}"
            raise ConfigError(f"two tasks have the id {found.id}: {places}", hint="give each text an id of its own")
        self.refused.append(Refusal(str(found.where), "duplicate", f"the same text as {twin.path}"))


def _unusable_id(id: str) -> str:
    """Why no file can be named after it, as a sample's script is; empty where one can."""
    if "\0" in id:
        return f"its id {id[:80]!r} holds a NUL character"
    return "its id holds half of a surrogate pair" if any("\ud800" <= char <= "\udfff" for char in id) else ""


@dataclass
class _Selection:
    """Which ids were asked for; all of them where `names` is empty."""

    names: tuple[str, ...]
    _seen: list[str] = field(default_factory=list)
    _matched: set[str] = field(default_factory=set)

    def takes(self, id: str) -> bool:
        if not self.names:
            return True
        self._seen.append(id)
        matching = {name for name in self.names if name == id or fnmatchcase(id, name)}
        self._matched |= matching
        return bool(matching)

    def check(self, source: str | Path) -> None:
        """Raises ConfigError for a name that nothing had."""
        for name in self.names:
            if name not in self._matched:
                near = difflib.get_close_matches(name, self._seen, n=1, cutoff=0.3)
                hint = f"did you mean {near[0]}?" if near else "patterns are written as in a shell: level1/*"
                raise ConfigError(f"no task of {source} has the id {name}", hint=hint)


def _candidates(source: str | Path) -> Iterable[Found]:
    path = expanded(Path(source)).absolute()
    if path.is_dir():
        return _kernelbench(path) or _folder(path)
    if path.exists():
        return _file(path)
    return list(_shipped(str(source), path))


def _file(path: Path) -> Iterable[Found]:
    if read := _FILES.get(path.suffix.lower()):
        return read(path)
    if path.suffix == ".py":  # what is wrong with the only file is an error, not a remark
        task = load_task(path)
        return [Candidate(path, task.name, task.text)]
    kinds = ", ".join((".py", *_FILES))
    raise ConfigError(f"{path} is no task set", hint=f"give a folder, or a file that ends in {kinds}")


def _folder(path: Path) -> Iterator[Found]:
    """`X/model.py` and `X.py`, in the order of X; names with a leading dot or underscore are none."""
    for entry in _listed(path):
        if entry.name.startswith((".", "_")):
            continue
        if (inner := entry / "model.py").is_file():
            yield read_candidate(inner, id=task_name(inner))
        elif entry.suffix == ".py" and entry.is_file():
            yield read_candidate(entry, id=task_name(entry))


def _kernelbench(path: Path) -> list[Found]:
    """The problems of a checkout of KernelBench, or of the folder of that name in it; none where it is neither."""
    root = next((root for root in (path / "KernelBench", path) if (root / LEVELS[0]).is_dir()), None)
    if root is None:
        return []
    files = [file for level in LEVELS if (root / level).is_dir() for file in _problems(root / level)]
    return [read_candidate(file, id=f"{file.parent.name}/{file.stem}") for file in files]


def _problems(level: Path) -> list[Path]:
    """`1_Square_matrix_multiplication_.py` before `10_…`: by number, as the benchmark counts them."""
    numbered = [(int(match[0]), file) for file in _listed(level) if (match := _PROBLEM.match(file.name))]
    return [file for _, file in sorted(numbered)]


def _shipped(names: str, path: Path) -> Iterator[Found]:
    try:
        root = asset(EXAMPLES)
    except FileNotFoundError:
        raise ConfigError(f"there is no {path}", hint="and this installation has no examples") from None
    shipped = {found.parent.name: found for found in sorted(root.glob("*/model.py"))}
    fitting = [name for name, found in shipped.items() if _fits_this_machine(found.parent)]
    for name in fitting if names == EXAMPLES else names.split(","):
        if name.strip() not in shipped:
            hint = f"give a folder, a file, or shipped examples: {', '.join(shipped)}"
            raise ConfigError(f"there is no {path}, and no shipped example {name.strip()!r}", hint=hint)
        yield read_candidate(shipped[name.strip()], id=name.strip())


def _fits_this_machine(example: Path) -> bool:
    """Examples whose script is for a GPU are left out of `examples` where there is none."""
    script = example / "turns.md"
    head = script.read_text(encoding="utf-8").split("## Turn", 1)[0] if script.is_file() else ""
    return "target: cuda" not in head or NVIDIA_CONTROL.exists()


def _listed(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error


def _why_empty(refused: Sequence[Refusal]) -> str:
    if not refused:
        return "a folder holds X/model.py or X.py, a file one task per row"
    first = refused[0]
    return f"{len(refused)} refused, the first: {first.where}: {first.detail}"

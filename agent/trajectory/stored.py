"""Finds stored runs below a path and says how each ended, without reading its log.

A collection keeps its runs in `tasks/<task>/<sample>/<run>/`; a runs folder has them side by side. Both are walked in
sorted order, one folder in memory at a time, so that ten thousand of them cost seconds and the order is the same
everywhere.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.config import expanded
from agent.errors import ConfigError
from agent.trajectory.events import StopReason
from agent.trajectory.folder import RunFolder

DEEPEST: Final = 6
RUN_FILES: Final = frozenset({"config.json", "task.json"})


@dataclass(frozen=True)
class Ending:
    """What verdict.json says. `verdict` is the report that counts, as plain data; None where nothing was judged.

    `errors` names what could not be judged. Such a run is owed, and so is one that infrastructure ended unrewarded.
    """

    reason: StopReason
    reward: int | None
    verdict: dict[str, Any] | None
    errors: tuple[str, ...]

    @property
    def settled(self) -> bool:
        """A result that stays: judged, or ended by the model itself or a person; not by trouble around it."""
        verdict = self.verdict.get("verdict") if self.verdict else None
        return is_settled(self.reason, self.reward, verdict, self.errors)


def is_settled(reason: StopReason | None, reward: int | None, verdict: str | None, errors: Sequence[str]) -> bool:
    """The rule of `Ending.settled`; `reason` is None where this version does not know it."""
    if errors:
        return False
    return reward is not None or not (reason is None or reason.infrastructure or verdict == "error")


def find_runs(paths: Iterable[Path]) -> Iterator[RunFolder]:
    """Every run folder at or below each path, each once. Raises ConfigError for a path that is no folder."""
    seen: set[str] = set()
    for path in paths:
        root = expanded(path).absolute()
        if not root.is_dir():
            raise ConfigError(f"{path} is not a folder", hint="give a run, a folder of runs, or a collection")
        for found in _walk(str(root), 0):
            if found not in seen:
                seen.add(found)
                yield RunFolder(Path(found))


def read_ending(folder: RunFolder) -> Ending | None:
    """None while the run is owed work: no verdict.json, or one that is torn."""
    try:
        return ending_of(json.loads((folder.path / "verdict.json").read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def ending_of(record: dict[str, Any]) -> Ending:
    """The same for what verdict.json holds. Raises ValueError, KeyError or TypeError where it is no such record."""
    counts, reward = record["counts"], record["reward"]
    if not isinstance(reward, int | None):
        raise TypeError("a reward is a whole number")
    return Ending(
        reason=StopReason(record["reason"]),
        reward=reward,
        verdict=_checked(record[counts]) if counts else None,
        errors=tuple(map(str, record["errors"])),
    )


def _checked(verdict: Any) -> dict[str, Any]:
    """The parts that are looked at again and again have the shape of a report's; TypeError or ValueError where not."""
    if not isinstance(verdict, dict):
        raise TypeError("a verdict is an object")
    if not all(isinstance(reason, dict) for reason in verdict.get("reasons") or ()):
        raise TypeError("a reason is an object")
    for rival in dict(verdict.get("speedup") or {}).values():
        if rival is not None and not isinstance(rival.get("ratio") if isinstance(rival, dict) else "", int | float):
            raise TypeError("a speed-up has a ratio")
    return verdict


def _walk(path: str, depth: int) -> Iterator[str]:
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError:  # vanished, or not for us to read
        return
    if {entry.name for entry in entries} >= RUN_FILES:
        yield path
        return
    if depth < DEEPEST:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                yield from _walk(entry.path, depth + 1)

"""Where the tasks of exported runs come from, and their licence where it is known."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.export.facts import Facts
from agent.trajectory.folder import RunFolder

UNKNOWN: Final = "unknown"
LOCAL: Final = "a file of its own"
_SPDX: Final = re.compile(r"SPDX-License-Identifier:\s*([\w.+-]+(?: (?:AND|OR|WITH) [\w.+-]+)*)")
_ROWS_FILE: Final = re.compile(r"[^/\\]+\.(?:jsonl|ndjson|parquet)(?![\w.])")
# Name, how its path looks, and what its repository or card states as its licence.
_KNOWN: Final = (
    ("KernelBench", re.compile(r"kernel-?bench", re.IGNORECASE), "MIT"),
    ("CUDA-Agent-Ops-6K", re.compile(r"ops-?6k", re.IGNORECASE), "none stated by its authors"),
)


@dataclass(frozen=True)
class Origin:
    """Of one task. `source` names a known benchmark or the file of a task set; never a path of the host."""

    source: str
    licence: str


def origins(facts: Iterable[Facts]) -> dict[str, Origin]:
    """By the task's sha256; each task is read once."""
    found: dict[str, Origin] = {}
    for one in facts:
        if one.task_sha256 not in found:
            task = RunFolder(Path(one.path)).task()
            found[one.task_sha256] = origin_of(str(task.path), task.text)
    return found


def origin_of(path: str, text: str) -> Origin:
    """What the text states goes before what is known of its source."""
    stated = _SPDX.search(text)
    for name, pattern, licence in _KNOWN:
        if pattern.search(path):
            return Origin(name, stated[1] if stated else licence)
    rows = _ROWS_FILE.search(path)
    return Origin(rows[0] if rows else LOCAL, stated[1] if stated else UNKNOWN)

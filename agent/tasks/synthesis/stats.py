"""What is in a set: kinds, operators, times, difficulty; from its rows and from the files beside it."""

import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.errors import ConfigError
from agent.tasks.importing import import_set
from agent.tasks.synthesis.sizing import DEVICES

TIMES: Final = ".times.jsonl"
FUNNEL: Final = ".funnel.json"


@dataclass(frozen=True)
class Difficulty:
    """One task for a curriculum. Ratio: eager / torch.compile. Headroom: eager / the time that moving inputs, weights
    and outputs once, and the FLOPs, take at the device's rates; both None where nothing was measured or counted.
    """

    task_id: str
    kind: str
    operators: int
    eager_ms: float | None
    compile_ms: float | None
    flops: int | None
    bytes: int | None
    headroom: float | None

    @property
    def ratio(self) -> float | None:
        return self.eager_ms / self.compile_ms if self.eager_ms and self.compile_ms else None


@dataclass(frozen=True)
class Stats:
    """One set."""

    source: str
    tasks: tuple[Difficulty, ...]
    kinds: Mapping[str, int]
    operators: Mapping[str, int]
    funnel: Mapping[str, Any] | None
    times_from: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "schema_version": 1,
            "source": self.source,
            "tasks": len(self.tasks),
            "kinds": {
                kind: {"tasks": count, "percent": 100 * count / len(self.tasks)} for kind, count in self.kinds.items()
            },
            "operators": dict(self.operators),
            "times_from": self.times_from,
            "eager_ms": quantiles([task.eager_ms for task in self.tasks]),
            "ratio": quantiles([task.ratio for task in self.tasks]),
            "headroom": quantiles([task.headroom for task in self.tasks]),
            "funnel": self.funnel,
            "difficulty": [vars(task) | {"ratio": task.ratio} for task in self.tasks],
        }


def stats_of(source: str) -> Stats:
    """Raises ConfigError."""
    rows = import_set(source).rows
    times, told = _times(Path(source))
    tasks = tuple(_difficulty(row, times.get(row["sha256"], {})) for row in rows)
    kinds = Counter(task.kind for task in tasks)
    names = Counter(name for row in rows for name in _names(row["ops"]))
    return Stats(source, tasks, dict(sorted(kinds.items())), dict(names.most_common()), _funnel(Path(source)), told)


def quantiles(values: Sequence[float | None]) -> dict[str, float] | None:
    """Least, quartiles, most."""
    known = sorted(value for value in values if value is not None)
    if len(known) < 2:
        return None
    low, middle, high = statistics.quantiles(known, n=4, method="inclusive")
    found = {"least": known[0], "25 %": low, "median": middle, "75 %": high, "most": known[-1]}
    return {name: float(f"{value:.4g}") for name, value in found.items()}


def _difficulty(row: Mapping[str, Any], time: Mapping[str, Any]) -> Difficulty:
    about = row.get("about") or {}
    flops, moved = about.get("flops"), _least_bytes(about)
    eager = time.get("eager_ms")
    return Difficulty(
        task_id=row["task_id"],
        kind=row["data_source"],
        operators=about.get("operator_count") or len(_names(row["ops"])),
        eager_ms=eager,
        compile_ms=time.get("compile_ms"),
        flops=flops,
        bytes=moved,
        headroom=_headroom(eager, flops, moved, str(about.get("target", ""))),
    )


def _least_bytes(about: Mapping[str, Any]) -> int | None:
    found = about.get("compulsory_bytes", about.get("least_bytes"))
    return int(found) if found is not None else None


def _headroom(eager_ms: float | None, flops: int | None, moved: int | None, target: str) -> float | None:
    device = DEVICES.get(target)
    if eager_ms is None or moved is None or device is None:
        return None
    floor_s = max(moved / device.bytes_per_s, (flops or 0) / device.matrix_flops)
    return round(eager_ms * 1e-3 / floor_s, 3) if floor_s else None


def _names(ops: Any) -> list[str]:
    return list(ops) if isinstance(ops, list | tuple) else [part.strip(" '\"[]") for part in str(ops).split(",")]


def _times(source: Path) -> tuple[dict[str, Mapping[str, Any]], str]:
    path = source.with_suffix(TIMES) if source.suffix else source / "none"
    if not path.is_file():
        return {}, "not measured"
    found: dict[str, Mapping[str, Any]] = {}
    device = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            found[row["sha256"]] = row
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{path}:{number} is no row of times", hint="remove the file, or make it again") from None
        device = f"{row.get('device', '')} {row.get('how', '')}".strip()
    return found, device or "unknown"


def _funnel(source: Path) -> Mapping[str, Any] | None:
    path = source.with_suffix(FUNNEL) if source.suffix else source / "none"
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    return data

"""The parts of a stored verdict that are shown, read so that no damaged or foreign file is more than a note.

Covers: verdict.json of any version, with any JSON in any place. What does not fit the contract is left out, never
guessed: a ratio without its interval, or one that is no finite number, is no ratio.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from agent.judging.reports import MedianUs, Reason, Speedup
from agent.trajectory.events import StopReason
from agent.trajectory.stored import is_settled
from agent.ui.summaries import is_quiet

M = TypeVar("M", bound=BaseModel)
Subject = Literal["best", "final"]
REWARDS: Final = (-1, 1, 2, 3)
SUBJECTS: Final[tuple[Subject, ...]] = ("best", "final")


@dataclass(frozen=True)
class Judged:
    """One verdict. Times in microseconds; `eager` and `compile` are None where nothing was measured against them."""

    verdict: str
    reward: int | None
    reasons: tuple[Reason, ...] = ()
    eager: Speedup | None = None
    compile: Speedup | None = None
    median_us: MedianUs | None = None
    rules: str = ""
    device: tuple[tuple[str, str], ...] = ()
    quiet: bool = True

    @property
    def accepted(self) -> bool:
        return self.verdict == "accepted"

    @property
    def weakest(self) -> Speedup | None:
        """The speed-up over the harder rival."""
        return min((s for s in (self.eager, self.compile) if s), key=lambda s: s.ratio, default=None)


@dataclass(frozen=True)
class Record:
    """One verdict.json. `judge` says who judged, where a later judgement wrote it; `raw` is the file as it is."""

    reason: StopReason | None
    reward: int | None
    counts: Subject | None
    subjects: Mapping[Subject, Judged]
    errors: tuple[str, ...]
    judge: Mapping[str, Any]
    replaces: str
    raw: Mapping[str, Any]

    @property
    def judged(self) -> Judged | None:
        """The verdict that counts."""
        return self.subjects.get(self.counts) if self.counts else None

    @property
    def settled(self) -> bool:
        """As `agent.trajectory.stored.Ending.settled`."""
        return is_settled(self.reason, self.reward, self.judged.verdict if self.judged else None, self.errors)


def read_record(path: Path) -> Record | None:
    """None where there is no such file. Raises ValueError with one line for a file that is no verdict."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is damaged: {error}") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{path.name} is damaged: it holds no object")
    return record_of(raw)


def record_of(raw: Mapping[str, Any]) -> Record:
    """The typed view of one verdict.json."""
    subjects = {name: judged_of(raw[name]) for name in SUBJECTS if isinstance(raw.get(name), dict)}
    counts = next((name for name in SUBJECTS if raw.get("counts") == name and name in subjects), None)
    errors, judge = raw.get("errors"), raw.get("judge")
    return Record(
        reason=_reason(raw.get("reason")),
        reward=_reward(raw.get("reward")),
        counts=counts,
        subjects=subjects,
        errors=tuple(str(error) for error in errors) if isinstance(errors, list) else (),
        judge=judge if isinstance(judge, dict) else {},
        replaces=str(raw.get("replaces") or ""),
        raw=raw,
    )


def judged_of(raw: Mapping[str, Any]) -> Judged:
    """The typed view of a verdict or of a profile report."""
    speedup = raw.get("speedup") if isinstance(raw.get("speedup"), dict) else {}
    reasons, device = raw.get("reasons"), raw.get("device")
    rules = [f"{key} {raw[key]}" for key in ("target", "policy", "precision") if isinstance(raw.get(key), str)]
    return Judged(
        verdict=str(raw.get("verdict") or raw.get("status") or "unknown"),
        reward=_reward(raw.get("reward")),
        reasons=tuple(filter(None, (_model(Reason, item) for item in reasons))) if isinstance(reasons, list) else (),
        eager=speedup_of((speedup or {}).get("eager")),
        compile=speedup_of((speedup or {}).get("compile")),
        median_us=_finite(_model(MedianUs, raw.get("median_us"))),
        rules=", ".join(rules),
        device=_flat(device) if isinstance(device, dict) else (),
        quiet=is_quiet(raw.get("evidence")),
    )


def speedup_of(raw: Any) -> Speedup | None:
    """A ratio with its interval; None for anything that is none."""
    speedup = _finite(_model(Speedup, raw))
    return speedup if speedup and 0 < speedup.low <= speedup.high and speedup.ratio > 0 else None


def _model(kind: type[M], raw: Any) -> M | None:
    try:
        return kind.model_validate(raw)
    except ValidationError:
        return None


def _finite(model: M | None) -> M | None:
    values = model.model_dump().values() if model else ()
    return model if all(math.isfinite(v) for v in values if isinstance(v, float)) else None


def _reward(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value in REWARDS else None


def _reason(value: Any) -> StopReason | None:
    try:
        return StopReason(value)
    except ValueError:
        return None


def _flat(device: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((str(k).replace("_", " "), str(v)) for k, v in device.items() if isinstance(v, str | int | float))

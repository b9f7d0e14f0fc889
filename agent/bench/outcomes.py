"""One judged task of a suite as a line of outcomes.jsonl, and the file that keeps them."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.errors import RecordError
from agent.judging.reports import MedianUs, Reason, Speedup, Verdict
from agent.tasks.task import Task

FILE: Final = "outcomes.jsonl"
Status = Literal["accepted", "rejected", "error", "missing"]
MISSING: Final = "bench.no_submission"
NO_LEVEL: Final = "all"


class Outcome(BaseModel):
    """What came of one task. `missing`: nothing was submitted, which counts as not solved; `error`: the judge could
    not say, which counts as not solved too but is judged again by the next run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str
    level: str
    task_sha256: str
    key: str
    """Submission, rules and judge: an outcome with the same key need not be made again."""
    status: Status
    reasons: tuple[Reason, ...] = ()
    reward: int | None = None
    speedup: dict[Literal["eager", "compile"], Speedup] | None = None
    median_us: MedianUs | None = None
    device: dict[str, Any] = {}
    seconds: float = 0.0
    at: str = ""

    @property
    def solved(self) -> bool:
        return self.status == "accepted" and self.speedup is not None

    def ratio(self, baseline: Literal["eager", "compile"]) -> float | None:
        """The point estimate against a baseline, for what was accepted."""
        if not self.solved or self.speedup is None or baseline not in self.speedup:
            return None
        return self.speedup[baseline].ratio


def level_of(task: str) -> str:
    """level2 of level2/17_Conv…; tasks without a folder have one level."""
    head, slash, _ = task.partition("/")
    return head if slash else NO_LEVEL


def judged(task: Task, verdict: Verdict, *, key: str, seconds: float) -> Outcome:
    return Outcome(
        task=task.name,
        level=level_of(task.name),
        task_sha256=task.sha256,
        key=key,
        status=verdict.verdict,
        reasons=verdict.reasons,
        reward=verdict.reward,
        speedup=verdict.speedup,
        median_us=verdict.median_us,
        device=verdict.device,
        seconds=round(seconds, 2),
        at=now(),
    )


def not_judged(task: Task, status: Literal["missing", "error"], reason: Reason, *, key: str) -> Outcome:
    return Outcome(
        task=task.name,
        level=level_of(task.name),
        task_sha256=task.sha256,
        key=key,
        status=status,
        reasons=(reason,),
        at=now(),
    )


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Outcomes:
    """The file: a line is written whole and synced before the next task begins; of a task the last line counts."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.latest = {outcome.task: outcome for outcome in self._read()}

    def add(self, outcome: Outcome) -> None:
        self.latest[outcome.task] = outcome
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(outcome.model_dump_json() + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RecordError(f"cannot write {self.path}: {error.strerror or error}", hint="free disk space") from error

    def known(self, task: Task, key: str) -> bool:
        """Whether an outcome stands that another try would only repeat."""
        found = self.latest.get(task.name)
        return found is not None and found.key == key and found.status != "error"

    def _read(self) -> Iterator[Outcome]:
        """A torn last line is a task that is judged again; the newline keeps it from spoiling the next one."""
        if not self.path.is_file():
            return
        text = self.path.read_text(encoding="utf-8", errors="replace")
        if text and not text.endswith("\n"):
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n")
        for line in text.splitlines():
            try:
                yield Outcome.model_validate(json.loads(line))
            except (ValueError, ValidationError):
                continue

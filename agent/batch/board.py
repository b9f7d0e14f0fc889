"""What a person or a summary wants to know about a collection: counts and results of all samples, and what runs now."""

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, Protocol

from agent.batch.executor import Job, Moved
from agent.batch.scan import Key, Result, Sample
from agent.batch.spending import Spending
from agent.trajectory.events import ReplyEvent

Mode = Literal["running", "draining", "stopping"]


@dataclass
class Row:
    """One running episode; `since` is in seconds of the monotonic clock."""

    task: str
    sample: int
    attempt: int
    since: float
    phase: str = "starting"
    detail: str = ""
    turn: int = 0


@dataclass
class Board:
    """Where the collection stands. Changed by the driver only, from its one thread."""

    tasks: int
    samples: int
    spending: Spending
    budget: str = ""
    states: dict[Key, Sample] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    rows: dict[Key, Row] = field(default_factory=dict)
    mode: Mode = "running"
    trouble: str = ""
    """What new work waits for, or why none is started any more."""
    ended_here: int = 0
    began: float = field(default_factory=time.monotonic)
    _counts: Counter[str] = field(default_factory=Counter)
    _rewards: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return self.tasks * self.samples

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began

    @property
    def eta_s(self) -> float | None:
        """Seconds that the rest takes at the pace of this command so far; None before anything ended."""
        left = self.total - self.count("done") - self.count("failed") - self.count("refused")
        return left * self.elapsed_s / self.ended_here if self.ended_here else None

    @property
    def rewards(self) -> dict[str, int]:
        """Reward -> settled episodes, `none` for those without one; every reward there is, in order."""
        return {name: self._rewards[name] for name in ("-1", "1", "2", "3", "none")}

    def count(self, state: str) -> int:
        return self._counts[state]

    def place(self, sample: Sample) -> None:
        """Where a sample stands now; one of a refused task is refused whatever it came to."""
        before = self.states.get(sample.key)
        if before is not None:
            self._counts[before.state] -= 1
            if before.result is not None:
                self._rewards[reward_name(before.result)] -= 1
        self.states[sample.key] = sample
        self._counts[sample.state] += 1
        if sample.result is not None:
            self._rewards[reward_name(sample.result)] += 1

    def start(self, job: Job) -> None:
        task, sample = job.key
        self.rows[job.key] = Row(task, sample, job.attempt, time.monotonic())

    def move(self, moved: Moved) -> None:
        row = self.rows.get(moved.key)
        if row is None:
            return
        if moved.status is not None:
            row.phase, row.detail, row.turn = moved.status.phase, moved.status.detail, moved.status.turn
        if isinstance(moved.event, ReplyEvent):
            row.turn = moved.event.turn


class View(Protocol):
    """Shows a board; called from the driver's thread, `update` several times a second."""

    def update(self, board: Board) -> None: ...

    def say(self, line: str) -> None: ...

    def attempt(self, record: dict[str, object]) -> None: ...

    def close(self) -> None: ...


def reward_name(result: Result) -> str:
    return "none" if result.reward is None else str(result.reward)


def hardest(result: Result) -> float | None:
    """The smaller of the two speed-ups; None where it was not accepted or not timed."""
    if result.reward is None or result.reward < 1:
        return None
    return min((s for s in (result.speedup_eager, result.speedup_compile) if s is not None), default=None)

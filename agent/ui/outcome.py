"""What a run came to, made from its folder alone: finished, unfinished or torn."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from agent.config import Config
from agent.judging.reports import Verdict
from agent.loop.result import better
from agent.tasks.task import Task
from agent.trajectory.events import Event, RunStart, StopReason
from agent.trajectory.folder import RunFolder
from agent.trajectory.reader import read_events
from agent.ui.progress import Progress
from agent.ui.summaries import verdict_of


@dataclass(frozen=True)
class Later:
    """`agent rejudge` has replaced the run's own judgement; `own` is the verdict that counted before."""

    agent_version: str
    reward: int | None
    best: Verdict | None
    final: Verdict | None
    own: Verdict | None


@dataclass(frozen=True)
class Outcome:
    """`verdict` is the one that counts: the better one of the two that may have been judged, by the newest judge."""

    folder: RunFolder
    task: Task
    config: Config
    start: RunStart | None
    progress: Progress
    best: Verdict | None
    final: Verdict | None
    later: Later | None = None

    @property
    def finished(self) -> bool:
        return self.progress.end is not None

    @property
    def reason(self) -> StopReason | None:
        return self.progress.reason

    @property
    def verdict(self) -> Verdict | None:
        return better(self.best, self.final)

    @property
    def subject(self) -> Literal["best", "final"] | None:
        """Which submission the verdict that counts is about."""
        if self.verdict is None:
            return None
        return "best" if self.verdict is self.best else "final"

    @property
    def reward(self) -> int | None:
        end = self.progress.end
        if self.later is not None:
            return self.later.reward
        if end is not None:
            return end.reward
        return self.verdict.reward if self.verdict else None

    @property
    def submission_sha256(self) -> str:
        event = self.progress.verdicts.get(self.subject or "")
        return event.submission_sha256 if event else self.progress.submission_sha256

    @property
    def rank(self) -> tuple[int, float]:
        """Orders the outcomes of several tries: reward, then the lower bound of the smaller of the two speed-ups.

        Where the intervals of two tries overlap, which one is faster is not known: the surer one comes first.
        """
        verdict = self.verdict
        if verdict is None or verdict.reward is None:
            return (-2, 0.0)
        return (verdict.reward, min((s.low for s in (verdict.speedup or {}).values()), default=0.0))


def read_outcome(folder: RunFolder) -> Outcome:
    """Raises ConfigError or RecordError where the folder is damaged."""
    return outcome_of(folder, read_events(folder.events))


def outcome_of(folder: RunFolder, events: Iterable[Event]) -> Outcome:
    """As read_outcome, from events that are at hand."""
    progress, start = Progress(), None
    for event in events:
        progress.add(event)
        start = event if isinstance(event, RunStart) else start
    best, final = (verdict_of(progress.verdicts.get(subject)) for subject in ("best", "final"))
    later = _later(folder, better(best, final))
    return Outcome(
        folder=folder,
        task=folder.task(),
        config=folder.config(),
        start=start,
        progress=progress,
        best=later.best if later else best,
        final=later.final if later else final,
        later=later,
    )


def _later(folder: RunFolder, own: Verdict | None) -> Later | None:
    """What a later judgement wrote; None where there was none, or where its file does not fit the contract."""
    try:
        data = json.loads((folder.path / "verdict.json").read_bytes())
        if not data.get("judge"):
            return None
        best, final = (Verdict.model_validate(data[name]) if data[name] else None for name in ("best", "final"))
        return Later(str(data["judge"]["agent_version"]), data["reward"], best, final, own)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def result_object(outcome: Outcome, code: int) -> dict[str, Any]:
    """The last line of --json."""
    progress, verdict = outcome.progress, outcome.verdict
    best = outcome.folder.best
    return {
        "type": "result",
        "run": str(outcome.folder.path),
        "task": outcome.task.name,
        "task_sha256": outcome.task.sha256,
        "reason": outcome.reason,
        "finished": outcome.finished,
        "reward": outcome.reward,
        "subject": outcome.subject,
        "verdict": verdict.model_dump(mode="json") if verdict else None,
        "best": str(best) if best.is_dir() else None,
        "turns": progress.turn,
        "prompt_tokens": progress.prompt_tokens,
        "completion_tokens": progress.completion_tokens,
        "cost_usd": progress.cost_usd,
        "wall_s": round(progress.elapsed_s, 3),
        "exit_code": code,
    }

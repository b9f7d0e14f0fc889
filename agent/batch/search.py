"""Several tries at one task: best-of side by side, or beam: rounds that start from the best submissions so far.

The winner has the highest reward, then the highest lower bound of its speed-up over its hardest rival: where two
intervals overlap, the better one is not known, and the surer one is taken. It is judged again alone, because a maximum
over noisy measurements looks better than it is; that verdict is the result.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent import __version__
from agent.batch.leases import DevicePool
from agent.batch.tried import notes
from agent.config import Config, SearchConfig
from agent.errors import JudgeError, SandboxError
from agent.judging.judge import Lease, judge_submission
from agent.judging.reports import Verdict
from agent.judging.target import resolve_target
from agent.loop.opening import Seed
from agent.loop.waiting import wait_for_sandboxes
from agent.tasks.task import Task
from agent.ui.outcome import Outcome
from agent.ui.report import judged_folder


@dataclass(frozen=True)
class Try:
    """One episode to be run. Numbers count from 1; `parent` is the try whose submission it starts from."""

    number: int
    round: int = 1
    parent: int | None = None
    seed: Seed | None = None


@dataclass(frozen=True)
class Tried:
    """A try that ran: what its folder holds, and the exit code that it alone would have."""

    attempt: Try
    outcome: Outcome
    code: int


@dataclass(frozen=True)
class Confirmation:
    """One submission judged again alone; `error` says why there is no verdict."""

    tried: Tried
    verdict: Verdict | None
    error: str = ""

    @property
    def accepted(self) -> bool:
        return self.verdict is not None and self.verdict.verdict == "accepted"


Play = Callable[[Sequence[Try]], Sequence[Tried]]


def run_rounds(config: SearchConfig, samples: int, *, play: Play, leaving: Callable[[], bool]) -> list[Tried]:
    """`samples` tries in all; `play` runs those of one round, in whatever order, and may give fewer when leaving."""
    done: list[Tried] = []
    for round, size in enumerate(round_sizes(config, samples), 1):
        first = sum(round_sizes(config, samples)[: round - 1]) + 1
        done.extend(play(plan_round(done, round=round, first=first, size=size, width=config.width)))
        if leaving():
            break
    return done


def round_sizes(config: SearchConfig, samples: int) -> tuple[int, ...]:
    """beam spreads the tries over its rounds, the earlier ones get what does not divide; else there is one round."""
    rounds = min(config.rounds, samples) if config.kind == "beam" else 1
    share, rest = divmod(samples, rounds)
    return tuple(share + (number < rest) for number in range(rounds))


def plan_round(done: Sequence[Tried], *, round: int, first: int, size: int, width: int) -> tuple[Try, ...]:
    """The first round starts from nothing; later ones from the `width` best submissions in turn, and know of all tries.

    Where nothing was accepted so far, they know why and start from nothing.
    """
    if not done:
        return tuple(Try(number, round) for number in range(first, first + size))
    ordered = sorted(done, key=rank, reverse=True)
    best: list[Tried | None] = list(_distinct(ordered))
    parents = best[:width] or [None]
    return tuple(_seeded(first + index, round, parents[index % len(parents)], ordered) for index in range(size))


def rank(tried: Tried) -> tuple[int, float]:
    """Reward, then the lower bound of the speed-up over the hardest rival."""
    return tried.outcome.rank


def confirm(
    config: Config, task: Task, done: Sequence[Tried], *, folder: Path, leave: Callable[[], bool]
) -> list[Confirmation]:
    """Judge the winner again with the machine to itself; the next best one only where that one is not accepted then.

    Logs go to `folder`. Raises agent.loop.waiting.Interrupted soon after `leave` turned true.
    """
    confirmations: list[Confirmation] = []
    device = DevicePool.of_machine(resolve_target(config.judge)).for_job()
    for tried in _distinct(sorted(done, key=rank, reverse=True)):
        log = folder / f"judge-{tried.attempt.number}.log"
        confirmations.append(_confirmed(config, task, tried, log, leave, lambda: device.lease(leave=leave)))
        if confirmations[-1].accepted or confirmations[-1].error:
            break
    return confirmations


def search_record(
    config: Config, task: Task, done: Sequence[Tried], confirmations: Sequence[Confirmation]
) -> dict[str, Any]:
    """What search.json holds; runs are named relative to its folder."""
    return {
        "schema_version": 1,
        "agent_version": __version__,
        "task": {"id": task.name, "sha256": task.sha256},
        "samples": config.run.samples,
        "search": config.search.model_dump(mode="json"),
        "tries": [_try_record(tried) for tried in sorted(done, key=lambda tried: tried.attempt.number)],
        "confirmations": [
            {
                "try": c.tried.attempt.number,
                "subject": c.tried.outcome.subject,
                "verdict": c.verdict.model_dump(mode="json") if c.verdict else None,
                "error": c.error or None,
            }
            for c in confirmations
        ],
        "winner": next((c.tried.attempt.number for c in confirmations if c.accepted), None),
    }


def _distinct(ordered: Sequence[Tried]) -> Iterator[Tried]:
    """Accepted submissions, each text once."""
    seen: set[str] = set()
    for tried in ordered:
        outcome = tried.outcome
        if outcome.verdict is None or outcome.verdict.verdict != "accepted" or judged_folder(outcome) is None:
            continue
        if outcome.submission_sha256 not in seen:
            seen.add(outcome.submission_sha256)
            yield tried


def _seeded(number: int, round: int, parent: Tried | None, ordered: Sequence[Tried]) -> Try:
    origin = parent.attempt.number if parent else None
    text = notes([(tried.attempt.number, tried.outcome) for tried in ordered], parent=origin)
    return Try(number, round, origin, Seed(judged_folder(parent.outcome) if parent else None, text))


def _confirmed(
    config: Config, task: Task, tried: Tried, log: Path, leave: Callable[[], bool], lease: Lease
) -> Confirmation:
    submission = judged_folder(tried.outcome)
    assert submission is not None
    try:
        verdict = wait_for_sandboxes(
            lambda opened: judge_submission(config, task, submission, log=log, opened=opened, lease=lease),
            leave=leave,
        )
    except (JudgeError, SandboxError) as error:
        return Confirmation(tried, None, str(error))
    if verdict.verdict == "error":
        return Confirmation(tried, verdict, "; ".join(reason.detail for reason in verdict.reasons))
    return Confirmation(tried, verdict)


def _try_record(tried: Tried) -> dict[str, Any]:
    return {
        "number": tried.attempt.number,
        "round": tried.attempt.round,
        "parent": tried.attempt.parent,
        "run": tried.outcome.folder.run_id,
        "reward": tried.outcome.reward,
    }

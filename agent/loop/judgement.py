"""The end of an episode: the workspace as it was left and the best submission are judged, in fresh sandboxes."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from agent.config import Config
from agent.errors import JudgeError, RecordError, SandboxError
from agent.judging.judge import Lease, Standing, judge_submission
from agent.judging.reports import Verdict
from agent.loop.keeping import submission_sha256
from agent.loop.ledger import Ledger
from agent.loop.result import better
from agent.loop.session import Log
from agent.loop.waiting import wait_for_sandboxes
from agent.tasks.task import Task
from agent.trajectory.events import StopReason, VerdictEvent
from agent.trajectory.folder import RunFolder
from agent.trajectory.writer import means_full_disk

Subject = Literal["final", "best"]
NOTHING: Final = ""


@dataclass
class Judgement:
    """Verdicts by subject; `errors`: one line for each subject that could not be judged, `full`: for want of disk."""

    verdicts: dict[Subject, Verdict] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    full: bool = False

    @property
    def best(self) -> Verdict | None:
        return self.verdicts.get("best")

    @property
    def final(self) -> Verdict | None:
        return self.verdicts.get("final")


def judge_run(
    config: Config,
    task: Task,
    folder: RunFolder,
    log: Log,
    *,
    disk_full: bool,
    leave: Callable[[], bool],
    lease: Lease = nullcontext,
    standing: Standing | None = None,
) -> Judgement:
    """Judge best and final, once where they are the same; verdicts that the log holds already are taken from there.

    `standing` is asked first, for the best submission, which was verified before: only what it accepts counts.

    `lease` is held while something is really timed, not for a workspace that holds no submission; the thread that
    judges enters it.

    Raises Interrupted soon after `leave` turns true; the log then holds what was judged until then.
    """
    judgement = recorded_judgement(log.ledger)
    known = {event.submission_sha256: judgement.verdicts[event.subject] for event in log.ledger.verdicts.values()}
    for subject, path in _subjects(folder):
        if subject in judgement.verdicts:
            continue
        try:
            sha256 = submission_sha256(path) or NOTHING
            if sha256 not in known:
                tool_log = None if disk_full else folder.logs / f"judge-{subject}.log"
                held = lease if sha256 != NOTHING else nullcontext
                asked = standing if subject == "best" else None
                known[sha256] = _judge(config, task, path, tool_log, leave, held, asked)
        except (JudgeError, SandboxError, OSError) as error:
            judgement.errors.append(f"{subject}: {error}")
            judgement.full |= means_full_disk(error)
            continue
        judgement.verdicts[subject] = known[sha256]
        _record(log, subject, sha256, known[sha256])
    return judgement


def recorded_judgement(ledger: Ledger) -> Judgement:
    """The verdicts that the log holds."""
    verdicts = {event.subject: Verdict.model_validate(event.verdict) for event in ledger.verdicts.values()}
    return Judgement(verdicts)


def verdict_record(reason: StopReason, reward: int | None, judgement: Judgement) -> dict[str, Any]:
    """What verdict.json holds."""
    return {
        "schema_version": 1,
        "reason": reason.value,
        "reward": reward,
        "best": judgement.best.model_dump(mode="json") if judgement.best else None,
        "final": judgement.final.model_dump(mode="json") if judgement.final else None,
        "counts": _counts(judgement),
        "errors": judgement.errors,
    }


def _subjects(folder: RunFolder) -> list[tuple[Subject, Path]]:
    best: list[tuple[Subject, Path]] = [("best", folder.best)] if folder.best.is_dir() else []
    return [*best, ("final", folder.workspace)]


def _judge(
    config: Config,
    task: Task,
    path: Path,
    log: Path | None,
    leave: Callable[[], bool],
    lease: Lease,
    standing: Standing | None,
) -> Verdict:
    return wait_for_sandboxes(
        lambda opened: judge_submission(config, task, path, log=log, opened=opened, lease=lease, standing=standing),
        leave=leave,
    )


def _record(log: Log, subject: Subject, sha256: str, verdict: Verdict) -> None:
    """A full disk must not cost the result: it is then returned, and the run can be judged again later."""
    try:
        log.record(VerdictEvent, subject=subject, submission_sha256=sha256, verdict=verdict.model_dump(mode="json"))
    except RecordError:
        return


def _counts(judgement: Judgement) -> Subject | None:
    chosen = better(judgement.best, judgement.final)
    if chosen is None:
        return None
    return "best" if chosen is judgement.best else "final"

"""One stored run judged again: its submissions, under its own rules unless overridden, by the present judge.

Covers: the old verdict stays until a new one is complete, and stays for good where infrastructure failed; a submission
that is not stored any more counts no longer, because nobody can vouch for it; a busy machine takes no reward away:
where the new intervals hold the old ones, nothing was found against the old verdict, and it stands. Not covered: that
speed-ups are those of this machine now, and that a reward which chance once gave is taken back by chance alone.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from agent.batch.leases import DevicePool
from agent.batch.verdict_files import VerdictFiles
from agent.config import Config, load_config
from agent.errors import AgentError, RecordError
from agent.judging.judge import is_trouble, judge_submission
from agent.judging.reports import Speedup, Verdict
from agent.judging.target import resolve_target
from agent.judging.version import JudgeVersion
from agent.loop.judgement import Judgement, Subject, verdict_record
from agent.loop.keeping import submission_sha256
from agent.loop.result import reward_of
from agent.loop.waiting import wait_for_sandboxes
from agent.trajectory.events import VerdictEvent
from agent.trajectory.folder import RunFolder
from agent.ui.preflight import check_target
from agent.ui.quantities import show_speedup
from agent.view.reading import read_run
from agent.view.verdicts import Judged, Record, record_of

Status = Literal["changed", "same", "planned", "skipped", "trouble"]
SUBJECTS: Final[tuple[Subject, ...]] = ("best", "final")


@dataclass(frozen=True)
class Request:
    """What all runs of one call share. `flags` are dotted keys as of `load_config`; they win over a run's own rules."""

    judge: JudgeVersion
    flags: Mapping[str, Any] = field(default_factory=dict)
    settings: Sequence[str] = ()
    only_accepted: bool = False
    force: bool = False
    any_timing: bool = False
    dry_run: bool = False
    side_by_side: int = 1


@dataclass(frozen=True)
class Rejudged:
    """What came of one run. `new` is None where it was not judged; `changes` names what differs."""

    run: Path
    task: str
    status: Status
    detail: str = ""
    old: Record | None = None
    new: Record | None = None
    changes: tuple[str, ...] = ()


def rejudge_run(folder: RunFolder, request: Request, *, leave: Callable[[], bool]) -> Rejudged:
    """Judge one run again and replace its verdict. Raises Interrupted soon after `leave` turns true; nothing else."""
    try:
        with folder.lock():
            return _Run(folder, request).rejudge(leave)
    except (AgentError, OSError, ValueError, RecursionError) as error:  # the last two: files that hold anything
        return Rejudged(folder.path, folder.run_id, "trouble", str(error))


class _Run:
    def __init__(self, folder: RunFolder, request: Request) -> None:
        self.folder = folder
        self.request = request
        self.files = VerdictFiles(folder)
        self.task = folder.task()
        self.config = _config(folder, request)
        self.old = self.files.present()

    def rejudge(self, leave: Callable[[], bool]) -> Rejudged:
        if reason := self._skip():
            return self._result("skipped", reason)
        if done := self.files.interrupted(self._is_ours):
            return self._result("planned", "") if self.request.dry_run else self._compared(self.files.finish(done))
        subjects = self._subjects()
        if not subjects:
            return self._result("skipped", "no submission is stored with it")
        if self.request.dry_run:
            return self._result("planned", " and ".join(subjects))
        assert self.old is not None and self.old.reason is not None
        judgement = self._judgement(subjects, leave)
        if judgement.errors:
            return self._result("trouble", "; ".join(judgement.errors))
        reward = reward_of(self.old.reason, judgement.best, judgement.final, judged=True)
        judge = self._judge_record()
        if missing := [name for name in self.old.subjects if name not in judgement.verdicts]:
            judge["not_stored"] = missing
        data = verdict_record(self.old.reason, reward, judgement) | {"judge": judge}
        if not self.request.any_timing and self._same_reward_rule() and (words := less_sure(self.old, record_of(data))):
            return self._result("trouble", words)
        return self._compared(self.files.replace(data))

    def _skip(self) -> str:
        """Why there is nothing to do; empty where there is."""
        if self.old is None:
            return "it has no verdict yet"
        if self.old.reason is None:
            return "verdict.json names a reason to stop that this version does not know"
        if self.request.only_accepted and not (self.old.judged and self.old.judged.accepted):
            return "not accepted"
        if not self.request.force and self._is_ours(self.old.judge):
            return "judged by these tools already"
        return ""

    def _is_ours(self, judge: Mapping[str, Any]) -> bool:
        """Whether these tools have judged under these rules: such a verdict needs no second one."""
        present = self._judge_record()
        return all(judge.get(key) == present[key] for key in ("tools_sha256", "rules"))

    def _judge_record(self) -> dict[str, Any]:
        """Who judges, and under which rules."""
        rules = self.config.judge.model_dump(mode="json") | {"target": resolve_target(self.config.judge)}
        return asdict(self.request.judge) | {"rules": rules, "side_by_side": self.request.side_by_side}

    def _same_reward_rule(self) -> bool:
        """Whether the old reward was given by the rule that gives the new one."""
        rules = self.old.judge.get("rules") if self.old else None
        own = load_config(files=(self.folder.path / "config.json",)).judge.reward
        return (rules.get("reward") if isinstance(rules, dict) else own) == self.config.judge.reward

    def _subjects(self) -> dict[Subject, Path]:
        """The submissions that are there to be judged, as agent.loop.judgement has them."""
        places: dict[Subject, Path] = {"best": self.folder.best, "final": self.folder.workspace}
        return {subject: path for subject, path in places.items() if path.is_dir() and not path.is_symlink()}

    def _judgement(self, subjects: Mapping[Subject, Path], leave: Callable[[], bool]) -> Judgement:
        """Each submission once, although two subjects may be the same one."""
        check_target(resolve_target(self.config.judge))
        judgement, known = Judgement(), dict[str, Verdict]()
        for subject, path in subjects.items():
            sha256 = submission_sha256(path) or ""
            try:
                if sha256 not in known:
                    known[sha256] = self._verdict(subject, path, leave)
                judgement.verdicts[subject] = known[sha256]
            except (AgentError, OSError) as error:
                judgement.errors.append(f"{subject}: {error}")
        self._share(judgement)
        return judgement

    def _verdict(self, subject: Subject, path: Path, leave: Callable[[], bool]) -> Verdict:
        config, task = self.config, self.task
        log = self.folder.logs / f"rejudge-{subject}.log" if self.folder.logs.is_dir() else None
        verdict = wait_for_sandboxes(
            lambda opened: judge_submission(
                config, task, path, log=log, opened=opened, lease=lambda: self._device(leave)
            ),
            leave=leave,
        )
        if is_trouble(verdict):
            raise RecordError("; ".join(f"{reason.code}: {reason.detail}" for reason in verdict.reasons))
        return verdict

    def _device(self, leave: Callable[[], bool]) -> AbstractContextManager[Mapping[str, str]]:
        """Alone with what is timed, unless judgements side by side were asked for; a GPU is never shared."""
        target = resolve_target(self.config.judge)
        if self.request.side_by_side > 1 and target == "cpu":
            return contextlib.nullcontext({})
        return DevicePool.of_machine(target).for_job().lease(leave=leave)

    def _share(self, judgement: Judgement) -> None:
        """A final state that was the best submission, and is not stored a second time, gets the same verdict."""
        if judgement.final is not None or judgement.best is None:
            return
        events = [event for event in read_run(self.folder).events if isinstance(event, VerdictEvent)]
        shas = {event.subject: event.submission_sha256 for event in events}
        if shas.get("best") and shas.get("best") == shas.get("final"):
            judgement.verdicts["final"] = judgement.best

    def _compared(self, new: Record) -> Rejudged:
        changes = changed(self.old, new)
        status: Status = "changed" if {"verdict", "reward", "reasons"} & set(changes) else "same"
        missing = new.judge.get("not_stored")
        detail = f"{', '.join(map(str, missing))} is not stored and counts no longer" if missing else ""
        return self._result(status, detail, new=new, changes=changes)

    def _result(
        self, status: Status, detail: str, *, new: Record | None = None, changes: tuple[str, ...] = ()
    ) -> Rejudged:
        return Rejudged(self.folder.path, self.task.name, status, detail, self.old, new, changes)


def changed(old: Record | None, new: Record) -> tuple[str, ...]:
    """What differs between two verdicts; a speed-up only where the two intervals have nothing in common."""
    before, after = (old.judged if old else None), new.judged
    found = [
        ("verdict", _verdict(before) != _verdict(after)),
        ("reward", (old.reward if old else None) != new.reward),
        ("reasons", _codes(before) != _codes(after)),
        ("eager", bool(before and after) and _apart(before.eager, after.eager)),  # type: ignore[union-attr]
        ("compile", bool(before and after) and _apart(before.compile, after.compile)),  # type: ignore[union-attr]
    ]
    return tuple(name for name, differs in found if differs)


def less_sure(old: Record, new: Record) -> str:
    """What was timed so much worse that a lower reward says nothing; empty where the lower reward has a reason.

    The same submission is accepted both times under the same rules, nothing beside it was judged otherwise or not at
    all, and each call that differs has become inconclusive in an interval that holds the old one.
    """
    before, after = old.judged, new.subjects.get(old.counts) if old.counts else None
    if any(name not in new.subjects or new.subjects[name].verdict != was.verdict for name, was in old.subjects.items()):
        return ""
    if not (before and after and before.accepted and after.accepted and before.rules == after.rules):
        return ""
    if (new.reward or 0) >= (old.reward or 0):
        return ""
    pairs = [("eager", before.eager, after.eager), ("torch.compile", before.compile, after.compile)]
    moved = [(name, a, b) for name, a, b in pairs if a and b and a.call != b.call]
    if not moved or not all(b.call == "inconclusive" and b.low <= a.low and b.high >= a.high for _, a, b in moved):
        return ""
    told = ", ".join(f"{show_speedup(a)} → {show_speedup(b)} over {name}" for name, a, b in moved)
    return f"timed too unsurely to say anything against the old verdict: {told}; is the machine busy?"


def _config(folder: RunFolder, request: Request) -> Config:
    """The run's own configuration under what was asked for now. Consent to run unconfined is never inherited."""
    flags = {"sandbox.i_understand": False} | {k: v for k, v in request.flags.items() if v is not None}
    return load_config(files=(folder.path / "config.json",), settings=request.settings, flags=flags)


def _verdict(judged: Judged | None) -> str:
    return judged.verdict if judged else ""


def _codes(judged: Judged | None) -> set[str]:
    return {reason.code for reason in judged.reasons} if judged else set()


def _apart(before: Speedup | None, after: Speedup | None) -> bool:
    return before is not None and after is not None and (before.high < after.low or after.high < before.low)

"""One stream of numbered candidates per kind, and which of them become the set: the first ones that pass, in order.

What is taken depends on the numbers alone, never on the size of batches or on what was examined beside it, so that an
interrupted synthesis and one in other batches give the same file.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agent.export.similarity import Nearest
from agent.judging.reports import Reason
from agent.tasks.admission.examiner import CandidateReport
from agent.tasks.synthesis.candidate import RESCALED, Candidate, Maker, NotMade
from agent.tasks.synthesis.measured import Measured

ATTEMPTS: Final = 3
# Flags that `agent tasks check` tells a person about; nobody has to keep such a candidate here.
DROPPING: Final = (
    "task.lost_work", "task.weight_without_effect", "task.not_finite", "task.changes_inputs", "task.output_is_input",
)  # fmt: skip
DUPLICATE, BENCHMARK, UNKNOWN, UNTIMED = "near-duplicate", "near KernelBench", "not examined", "not timed"
FACTORS: Final = {"task.too_fast": RESCALED, "task.too_slow": 1 / RESCALED}


@dataclass(frozen=True)
class Kept:
    """A candidate that is in the set."""

    candidate: Candidate
    report: CandidateReport
    nearest: Nearest | None
    times: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Dropped:
    """One that is not: `stage` is a reason's code or one of the names above."""

    kind: str
    number: int
    ops: tuple[str, ...]
    stage: str
    detail: str


@dataclass
class Stream:
    """Candidates of one kind. `quota` is how many are wanted."""

    kind: str
    quota: int
    source: Maker
    nearest: Callable[[Candidate], Nearest | None]
    measured: Measured = field(default_factory=lambda: Measured({}))
    kept: list[Kept] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    rescaled: int = 0
    _marks: set[str] = field(default_factory=set)
    _made: dict[tuple[int, int, float], Candidate | NotMade] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        return len(self.kept) >= self.quota

    @property
    def number(self) -> int:
        """The first that is not decided."""
        return len(self.kept) + len(self.dropped)

    @property
    def limit(self) -> int:
        """A kind in which so few pass has no more candidates that differ."""
        return 400 + 40 * self.quota

    @property
    def exhausted(self) -> bool:
        return not self.full and self.number >= self.limit

    def wanted(
        self, reports: Mapping[str, CandidateReport], count: int, *, waiting: Collection[str] = ()
    ) -> list[Candidate]:
        """The next candidates to be examined, at most `count`, as many as will probably fill the quota with those that
        are `waiting` for their reports.
        """
        found: list[Candidate] = []
        share = (len(self.kept) + 4) / (self.number + 5)
        likely, number = float(len(self.kept)), self.number
        while likely < self.quota and len(found) < count and number < self.limit:
            candidate, report = self._tries(number, reports)
            if candidate is not None and not self._decided_unseen(candidate):
                if report is None and candidate.examined_sha256 not in waiting:
                    found.append(candidate)
                likely += share if report is None else report.status == "admitted" and not _dropping(report)
            number += 1
        return found

    def settle(self, reports: Mapping[str, CandidateReport]) -> None:
        """Decide in order as far as reports reach."""
        while not self.full and self.number < self.limit:
            decided = self._decide(self.number, reports)
            if decided is None:
                return
            if isinstance(decided, Kept):
                self.kept.append(decided)
                self._marks.add(decided.candidate.mark)
            else:
                self.dropped.append(decided)

    def funnel(self) -> Counter[str]:
        return Counter(dropped.stage for dropped in self.dropped)

    def _decided_unseen(self, candidate: Candidate) -> bool:
        """It is dropped whatever an examination says."""
        return candidate.mark in self._marks or self._contaminated(candidate) or self._untimed(candidate)

    def _contaminated(self, candidate: Candidate) -> bool:
        nearest = self.nearest(candidate)
        return nearest is not None and nearest.contaminated

    def _untimed(self, candidate: Candidate) -> bool:
        """Where times of the target are given, a task that was only seen in a CPU's sizes needs one."""
        twin = candidate.text != candidate.examined
        return bool(self.measured.rows) and twin and candidate.sha256 not in self.measured.rows

    def _candidate(self, number: int, attempt: int, factor: float) -> Candidate | NotMade:
        key = (number, attempt, factor)
        if key not in self._made:
            self._made[key] = self.source.candidate(self.kind, number, factor=factor, attempt=attempt)
        return self._made[key]

    def _tries(
        self, number: int, reports: Mapping[str, CandidateReport]
    ) -> tuple[Candidate | None, CandidateReport | None]:
        """The last attempt that is known about, and its report."""
        candidate: Candidate | None = None
        report: CandidateReport | None = None
        factor = 1.0
        for attempt in range(ATTEMPTS):
            following = self._candidate(number, attempt, factor)
            if isinstance(following, NotMade):
                return candidate, report
            candidate, report = following, reports.get(following.examined_sha256)
            if report is None or report.code not in FACTORS:
                return candidate, report
            factor *= FACTORS[report.code]
        return candidate, report

    def _decide(self, number: int, reports: Mapping[str, CandidateReport]) -> Kept | Dropped | None:
        first = self._candidate(number, 0, 1.0)
        if isinstance(first, NotMade):
            return Dropped(self.kind, number, (), first.stage, first.detail)
        if first.mark in self._marks:
            return Dropped(self.kind, number, first.ops, DUPLICATE, "the structure of an earlier one")
        nearest = self.nearest(first)
        if nearest is not None and self._contaminated(first):
            detail = f"{nearest.similarity:.2f} similar to {nearest.name}"
            return Dropped(self.kind, number, first.ops, BENCHMARK, detail)
        candidate, report = self._tries(number, reports)
        if candidate is None or report is None:
            return self._unseen(first)
        if report.status != "admitted":
            return Dropped(self.kind, number, candidate.ops, report.code or UNKNOWN, report.detail)
        if flag := _dropping(report):
            return Dropped(self.kind, number, candidate.ops, flag.code, flag.detail)
        if self._untimed(candidate):
            return self._unseen(candidate)
        if objection := self.measured.objection(candidate.sha256):
            return Dropped(self.kind, number, candidate.ops, *objection)
        made = self.measured.sized(candidate)
        self.rescaled += bool(candidate.attempt) or made.text != candidate.text
        return Kept(made, report, nearest, self.measured.beside(made, candidate.sha256))

    def _unseen(self, candidate: Candidate) -> Dropped | None:
        """What has no report is decided where no report would help."""
        if not self._untimed(candidate):
            return None
        return Dropped(self.kind, candidate.number, candidate.ops, UNTIMED, "no time of it is given")


def _dropping(report: CandidateReport) -> Reason | None:
    return next((flag for flag in report.flags if flag.code in DROPPING), None)

"""`agent tasks check`: every task as it stands, and where only its size is at fault, with other sizes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from agent.config import Config
from agent.judging.tool_runs import Target
from agent.tasks.admission.examiner import CandidateReport, Examination, Examiner, open_examiner
from agent.tasks.admission.rescale import Rescaled, grown, shrunk
from agent.tasks.admission.scratch import scratch_folder
from agent.tasks.task import Task

BATCH: Final = 16
LOW_MS, HIGH_MS = 1.0, 100.0
SLOWEST_MS: Final = 1000.0  # what is slower takes minutes to examine; other sizes are tried instead
TOO_LARGE: Final = ("task.too_slow", "task.out_of_memory", "task.hangs", "task.tiny_output")
Status = Literal["admitted", "rescaled", "refused", "error"]


@dataclass(frozen=True)
class Finding:
    """One task: as it stands, and the sizes with which it can be one where it cannot as it stands."""

    task: Task
    status: Status
    report: CandidateReport
    rescaled: Rescaled | None = None
    rescaled_report: CandidateReport | None = None
    remarks: tuple[str, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = {"task": self.task.name, "sha256": self.task.sha256, "status": self.status}
        data["report"] = self.report.model_dump(mode="json", exclude={"id"})
        data["remarks"] = list(self.remarks)
        if self.rescaled and self.rescaled_report:
            report = self.rescaled_report.model_dump(mode="json", exclude={"id"})
            data["rescaled"] = {"sizes": self.rescaled.told(), "code": self.rescaled.text, "report": report}
        return data


def check_tasks(
    tasks: Sequence[Task],
    config: Config,
    *,
    target: Target,
    how: Examination,
    rescale: bool,
    told: Callable[[Finding], None],
) -> list[Finding]:
    """Examines all tasks, a batch at a time; `told` hears of each as it is known. Raises SandboxError, JudgeError."""
    how = replace(how, low_ms=0.0, high_ms=SLOWEST_MS)
    findings: list[Finding] = []
    with scratch_folder() as scratch, open_examiner(config, target=target, scratch=scratch) as examiner:
        for batch in _batches(tasks):
            reports = examiner.examine({str(at): task.text for at, task in enumerate(batch)}, how)
            for at, task in enumerate(batch):
                finding = _finding(examiner, task, reports[str(at)], how, rescale=rescale)
                findings.append(finding)
                told(finding)
    return findings


def _batches(tasks: Sequence[Task]) -> Iterator[Sequence[Task]]:
    for at in range(0, len(tasks), BATCH):
        yield tasks[at : at + BATCH]


def _finding(examiner: Examiner, task: Task, report: CandidateReport, how: Examination, *, rescale: bool) -> Finding:
    if report.status == "admitted":
        variants = _out_of_band(task, report)
        if variants:
            return Finding(task, "admitted", report, remarks=(variants,))
        return Finding(task, "admitted", report)
    if report.status == "error":
        return Finding(task, "error", report)
    if rescale and report.code in TOO_LARGE:
        variants_found = shrunk(task.text)
        found = _first_admitted(examiner, variants_found, how)
        if found:
            return Finding(task, "rescaled", report, *found)
        if variants_found:
            last = examiner.examine({"0": variants_found[-1].text}, how)["0"]
            detail = f"nor with other sizes ({variants_found[-1].told()}): {last.code}: {last.detail}"
            return Finding(task, "refused", report, remarks=(detail,))
    return Finding(task, "refused", report)


def _out_of_band(task: Task, report: CandidateReport) -> str:
    """A remark: such a task can be judged, but its times say little, or a judgement takes long."""
    eager_ms = report.facts.get("eager_ms")
    if not isinstance(eager_ms, float | int) or LOW_MS <= eager_ms <= HIGH_MS:
        return ""
    variants = grown(task.text) if eager_ms < LOW_MS else shrunk(task.text)
    wanted = LOW_MS * 3 / max(eager_ms, 1e-6) if eager_ms < LOW_MS else HIGH_MS / 3 / eager_ms
    better = min(variants, key=lambda one: abs(one.factor / wanted - 1), default=None)
    hint = f"; other sizes would help, for instance {better.told()}" if better else ""
    return f"eager takes {eager_ms:.3g} ms, outside of {LOW_MS:g} to {HIGH_MS:g} ms{hint}"


def _first_admitted(
    examiner: Examiner, variants: Sequence[Rescaled], how: Examination
) -> tuple[Rescaled, CandidateReport] | None:
    """The variant nearest to the original sizes that is admitted, in the band of times if there is one."""
    if not variants:
        return None
    reports: Mapping[str, CandidateReport] = examiner.examine(
        {str(at): one.text for at, one in enumerate(variants)}, replace(how, lanes=1, high_ms=HIGH_MS)
    )
    for at, one in enumerate(variants):
        if reports[str(at)].status == "admitted":
            return one, reports[str(at)]
    return None

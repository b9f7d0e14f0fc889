"""Cases of the corpus: one folder each, what is expected of it, and whether a report is right."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

OWN: Final = Path(__file__).resolve().parent
KNOWN: Final = OWN / "known"
TRUE_TIME: Final = 1.25


@dataclass(frozen=True)
class Case:
    """One folder; `reasons` are the beginnings of reason codes that name what the hack does (empty: any)."""

    folder: Path
    expect: str
    policy: str
    target: str
    tolerated: bool
    reasons: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def times_count(self) -> bool:
        """Whether the verdict depends on the clock, so that nothing else should run meanwhile."""
        return self.expect == "accept" or self.tolerated or any(code.startswith("timing") for code in self.reasons)


@dataclass(frozen=True)
class Outcome:
    """What the judge said about a case."""

    case: Case
    got: str
    reason: str
    right: bool
    seconds: float
    report: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """One line of the file that --json writes and --resume reads."""
        told = {"got": self.got, "reason": self.reason, "right": self.right, "seconds": round(self.seconds, 2)}
        return {"case": self.case.name, "expect": self.case.expect, **told, "report": self.report}


def read_case(folder: Path, *, target: str) -> Case | None:
    """None where the case is for another target; `any` is for both."""
    told = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    if told["target"] not in ("any", target):
        return None
    return Case(
        folder=folder,
        expect=told["expect"],
        policy=told["policy"],
        target=target,
        tolerated=told.get("tolerated") == "true-time",
        reasons=tuple(told.get("reasons", ())),
    )


def cases_in(folders: Sequence[Path], *, only: Sequence[str] = (), target: str = "cpu") -> list[Case]:
    """The cases of these folders for a target, in the order of their names."""
    paths = [path.parent for folder in folders for path in sorted(folder.glob("*/case.json"))]
    found = [case for path in paths if (case := read_case(path, target=target)) is not None]
    return [case for case in found if not only or case.name in only]


def outcome(case: Case, report: dict[str, Any], seconds: float) -> Outcome:
    """The report of judge, profiling or verify, read."""
    told = report.get("verdict") or {"verified": "accepted", "profiled": "accepted"}.get(
        report["status"], report["status"]
    )
    reasons = [reason["code"] for reason in report.get("reasons") or []]
    shown = reasons[0] if reasons else ""
    if told == "accepted" and report.get("speedup"):
        shown = ", ".join(f"{name} {value['ratio']:.2f}x {value['call']}" for name, value in report["speedup"].items())
    return Outcome(
        case=case, got=told, reason=shown, right=_right(case, told, reasons, report), seconds=seconds, report=report
    )


def _right(case: Case, told: str, reasons: Sequence[str], report: dict[str, Any]) -> bool:
    if case.expect == "accept":
        return told == "accepted"
    if told == "accepted":
        # Such a case is a clean-up of the reference at best: faster than both baselines would be a lie.
        speedup = report.get("speedup") or {}
        return case.tolerated and min((value["low"] for value in speedup.values()), default=0.0) <= TRUE_TIME
    if not reasons:
        return False
    if told == "error":
        return reasons[0].startswith("task.")
    return not case.reasons or reasons[0].startswith(case.reasons)

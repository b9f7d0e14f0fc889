"""What earlier tries at a task came to, told to the next: verdicts, speed-ups on the way, reasons for rejections."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from agent.loop.prompts import render
from agent.trajectory.events import ActionEvent, Event, ObservationEvent
from agent.trajectory.reader import read_events
from agent.ui.console import one_line
from agent.ui.outcome import Outcome
from agent.ui.summaries import STOP_WORDS, report_words, verdict_words

MOST_TRIES: Final = 6
MOST_STEPS: Final = 8
STEP_CHARS: Final = 240
SUMMARY_CHARS: Final = 600


@dataclass(frozen=True)
class Told:
    """One try in a few lines."""

    number: int
    outcome: str
    summary: str
    steps: tuple[str, ...]


def notes(tries: Sequence[tuple[int, Outcome]], *, parent: int | None) -> str:
    """The text for a new try; `tries` best first. `parent` is the one whose submission it starts from."""
    told = [tell(number, outcome) for number, outcome in tries[:MOST_TRIES]]
    return render("tried", tries=told, parent=parent, left_out=max(0, len(tries) - MOST_TRIES))


def tell(number: int, outcome: Outcome) -> Told:
    """Read from the run's log, which is read once and not held."""
    steps: list[str] = []
    summary = ""
    for event in read_events(outcome.folder.events):
        if isinstance(event, ActionEvent) and event.name == "submit":
            summary = str(event.arguments.get("summary") or "")
        steps.extend(step for step in _steps(event) if step not in steps[-1:])
    return Told(number, _outcome_words(outcome), one_line(summary, SUMMARY_CHARS), tuple(steps[-MOST_STEPS:]))


def _steps(event: Event) -> Iterator[str]:
    """What was measured, and what was refused and why; a build or check that went well says nothing by itself."""
    if not isinstance(event, ObservationEvent) or not event.report:
        return
    status = event.report.get("status")
    if status in ("built", "verified"):
        return
    words = report_words(event.report)
    if words:
        yield one_line(f"turn {event.turn}, {event.name}: {words}", STEP_CHARS)


def _outcome_words(outcome: Outcome) -> str:
    if outcome.verdict is not None:
        return one_line(verdict_words(outcome.verdict), STEP_CHARS)
    return STOP_WORDS[outcome.reason] if outcome.reason else "it has not ended"

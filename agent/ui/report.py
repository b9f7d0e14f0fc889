"""report.md and report.html of a run, made from its folder alone, so that they can be made again at any time."""

import hashlib
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent import __version__
from agent.judging.reports import Verdict
from agent.trajectory.events import Event, ReplyEvent, RunStart
from agent.trajectory.folder import RunFolder
from agent.trajectory.reader import read_events
from agent.ui.console import one_line, safe
from agent.ui.heading import limits_words
from agent.ui.narration import Narrator
from agent.ui.outcome import Outcome, read_outcome
from agent.ui.portable import make_portable, submitted_files
from agent.ui.quantities import show_bytes, show_cost, show_duration, show_us
from agent.ui.summaries import STOP_WORDS, reward_words, rules_words
from agent.ui.tables import judged_words, shell_word
from agent.ui.templates_env import render

_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]<>#|~])")


@dataclass
class Turn:
    """One turn in brief: what the model thought, and a line for everything that happened."""

    number: int
    thought: str = ""
    lines: list[str] = field(default_factory=list)


def run_report(path: Path) -> int:
    """`agent report`: write the reports again and print where they are."""
    outcome = read_outcome(RunFolder.open(path))
    for written in write_report(outcome):
        sys.stdout.write(f"{written}\n")
    return 0


def write_report(outcome: Outcome) -> tuple[Path, ...]:
    """Write report.md and report.html, and make the judged submission usable. Raises RecordError."""
    folder = outcome.folder
    judged = judged_folder(outcome)
    files = submitted_files(judged) if judged else []
    if judged and outcome.verdict and outcome.verdict.verdict == "accepted":
        make_portable(judged, target=outcome.verdict.target, model_text=outcome.task.text)
    data = report_data(outcome, judged, files)
    folder.write_text("report.md", render("report.md.j2", md=markdown_escape, **data))
    folder.write_text("report.html", render("report.html.j2", **data))
    return folder.path / "report.md", folder.path / "report.html"


def judged_folder(outcome: Outcome) -> Path | None:
    """Where the submission lies that the verdict which counts is about."""
    folder = outcome.folder.best if outcome.subject == "best" else outcome.folder.workspace
    return folder if outcome.subject and (folder / "model_new.py").is_file() else None


def report_data(outcome: Outcome, judged: Path | None, files: list[Path]) -> dict[str, Any]:
    """Everything that the templates show, as plain strings and lists of them."""
    progress, verdict = outcome.progress, outcome.verdict
    return {
        "title": outcome.task.name,
        "headline": _headline(verdict, scored=outcome.reward is not None),
        "accepted": verdict is not None and verdict.verdict == "accepted",
        "reasons": [(r.code, r.detail) for r in verdict.reasons] if verdict else [],
        "subject": f"Judged: {judged_words(outcome)}." if outcome.subject else "",
        "times": _times(verdict),
        "facts": list(_facts(outcome)),
        "device": _items(verdict.device if verdict else {}),
        "files": [(str(f.relative_to(judged)), show_bytes(f.stat().st_size), _sha256(f)) for f in files]
        if judged
        else [],
        "folder": str(judged) if judged else "",
        "folder_python": repr(str(judged)) if judged else "",
        "use_shell": shell_word(str(judged / "use.py")) if judged else "",
        "submission_sha256": outcome.submission_sha256,
        "turns": turns_in_brief(read_events(outcome.folder.events)),
        "spent": _spent(outcome),
        "limits": limits_words(outcome.config),
        "run": str(outcome.folder.path),
        "ended": _ended(outcome),
        "version": __version__,
        "made_at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(progress.last_at or time.time())),
    }


def turns_in_brief(events: Iterator[Event]) -> list[Turn]:
    """Lines of the narration, gathered by turn; what happens before the first turn and after the last has number 0."""
    narrator, turns = Narrator(), [Turn(0)]
    for event in events:
        if isinstance(event, ReplyEvent):
            turns.append(Turn(event.turn))
        elif event.type in ("stop", "verdict"):
            continue
        for line in narrator.lines(event):
            if line.tone == "turn":
                turns[-1].thought = line.text
                continue
            took = f" ({show_duration(line.took_s)})" if line.took_s is not None else ""
            words = " — ".join(part for part in (line.text, line.tail) if part)
            turns[-1].lines.append(f"{line.head}{': ' if words else ''}{words}{took}")
    return [turn for turn in turns if turn.number or turn.lines]


def markdown_escape(text: str) -> str:
    """`text` on one line, shown as it is by any Markdown viewer."""
    return _MARKDOWN.sub(r"\\\1", " ".join(safe(text).split()))


def _headline(verdict: Verdict | None, *, scored: bool) -> str:
    if verdict is None:
        return "nothing was judged"
    return verdict.verdict + reward_words(verdict, scored=scored)


def _times(verdict: Verdict | None) -> list[tuple[str, str, str, str, str]]:
    if verdict is None or verdict.median_us is None or verdict.speedup is None:
        return []
    rows = [("candidate", show_us(verdict.median_us.candidate), "", "", "")]
    medians = {"eager": verdict.median_us.eager, "compile": verdict.median_us.compile}
    for key, speedup in verdict.speedup.items():
        name = "torch.compile" if key == "compile" else key
        interval = f"{speedup.low:.3f}–{speedup.high:.3f}"
        rows.append((name, show_us(medians[key]), f"{speedup.ratio:.3f}×", interval, speedup.call))
    return rows


def _facts(outcome: Outcome) -> Iterator[tuple[str, str]]:
    yield "task", f"{outcome.task.path}"
    yield "task sha256", outcome.task.sha256
    judge = outcome.config.judge
    yield "rules", f"{rules_words(judge)}, reward by {judge.reward}"
    if outcome.start:
        yield "language model", _described(outcome.start, "backend")
        yield "sandbox", _described(outcome.start, "sandbox")


def _described(start: RunStart, what: str) -> str:
    data: dict[str, Any] = getattr(start, what)
    return ", ".join(f"{key} {value}" for key, value in _items(data) if value not in ("", "None"))


def _items(data: dict[str, Any]) -> list[tuple[str, str]]:
    flat = [(k, v) for k, v in data.items() if isinstance(v, str | int | float) or v is None]
    return [(str(key).replace("_", " "), one_line(str(value))) for key, value in flat]


def _spent(outcome: Outcome) -> list[tuple[str, str]]:
    progress = outcome.progress
    actions = ", ".join(f"{count} {name}" for name, count in sorted(progress.actions.items()))
    return [
        ("turns", str(progress.turn)),
        ("actions", actions or "none"),
        ("time", show_duration(progress.end.wall_s if progress.end else progress.elapsed_s)),
        ("tokens", f"{progress.prompt_tokens} in, {progress.completion_tokens} out"),
        ("cost", show_cost(progress.cost_usd) if progress.replies else "nothing"),
    ]


def _ended(outcome: Outcome) -> str:
    if outcome.reason is None:
        return "has not ended"
    detail = outcome.progress.stop.detail if outcome.progress.stop else ""
    return STOP_WORDS[outcome.reason] + (f" ({one_line(detail)})" if detail else "")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

"""The turns of one run, ready to be shown: what the model thought and did, and what came of it."""

import difflib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from markupsafe import Markup
from pydantic import ValidationError

from agent.backends.base import ToolCall
from agent.judging.reports import Diagnostic
from agent.trajectory.events import (
    ActionEvent,
    Event,
    MessageEvent,
    ObservationEvent,
    ReplyEvent,
    Resumed,
    SnapshotEvent,
    StopEvent,
)
from agent.ui.console import one_line, safe
from agent.ui.quantities import show_cost, show_count, show_duration, show_ratio
from agent.ui.summaries import STOP_WORDS, action_words, outcome_words
from agent.view.code import Highlighter, cut, diff, language_of, output
from agent.view.verdicts import Judged, judged_of

TEXT_CHARS: Final = 24_000
DIAGNOSTICS_AT_MOST: Final = 20
FILES_AT_MOST: Final = 64
DIFF_CHARS: Final = 200_000
DIFF_PAIRS: Final = 500_000
"""Pairs of equal lines, which is what difflib's time grows with: few lines that come often cost minutes."""
NONE: Final = Markup("")


@dataclass
class Step:
    """One action and what came back. `code`, `changes` and `output` are finished HTML."""

    name: str
    title: str
    code: Markup = NONE
    changes: Markup = NONE
    since: Markup = NONE
    """How the files differ from those of the last comparison."""
    code_lines: int = 0
    size: str = ""
    """Lines added and removed."""
    status: str = "no result"
    words: str = ""
    took: str = ""
    output: Markup = NONE
    output_lines: int = 0
    log: str = ""
    timing: Judged | None = None
    diagnostics: list[Diagnostic] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.status == "ok"


@dataclass
class Turn:
    """One reply and its steps; number 0 is what came before the first reply."""

    number: int
    text: str = ""
    reasoning: str = ""
    facts: list[str] = field(default_factory=list)
    complaint: str = ""
    steps: list[Step] = field(default_factory=list)
    messages: list[tuple[str, Markup]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    @property
    def brief(self) -> str:
        """The actions of this turn in a few words, for the list of turns."""
        return ", ".join(dict.fromkeys(step.name for step in self.steps)) or "no action"

    @property
    def timing(self) -> Judged | None:
        return next((step.timing for step in reversed(self.steps) if step.timing), None)

    @property
    def failed(self) -> bool:
        return bool(self.complaint) or any(not step.good for step in self.steps)


def fold_turns(events: Iterable[Event], *, highlighter: Highlighter) -> list[Turn]:
    """All turns in order; any prefix of a log gives a meaningful list."""
    folding = _Folding(highlighter)
    for event in events:
        folding.add(event)
    return [turn for turn in folding.turns if turn.number or turn.messages or turn.notices]


class _Folding:
    def __init__(self, highlighter: Highlighter) -> None:
        self.turns = [Turn(0)]
        self._html = highlighter
        self._calls: dict[str, ToolCall] = {}
        self._steps: dict[str, Step] = {}
        self._writes: dict[str, ActionEvent] = {}
        self._files = Files()

    def add(self, event: Event) -> None:
        turn = self.turns[-1]
        match event:
            case MessageEvent():
                who = event.message.role if event.origin == "harness" else event.origin.replace("_", " ")
                turn.messages.append((who, output(event.message.content, limit=TEXT_CHARS)))
            case ReplyEvent():
                self.turns.append(self._reply(event))
            case ActionEvent():
                self._act(turn, event)
            case ObservationEvent():
                self._observe(turn, event)
            case SnapshotEvent() if event.is_best:
                timed = f"{show_ratio(event.speedup)} over its harder rival" if event.speedup else "verified, not timed"
                turn.notices.append(f"kept as the best submission so far: {timed}")
            case Resumed():
                how = "had been stopped here and was gone on with" if event.reopens else "was cut off here and resumed"
                turn.notices.append(f"the run {how}")
            case StopEvent():
                detail = f": {one_line(event.detail, 400)}" if event.detail else ""
                turn.notices.append(f"ended: {STOP_WORDS[event.reason]}{detail}")
            case _:
                pass

    def _reply(self, event: ReplyEvent) -> Turn:
        reply, usage = event.reply, event.reply.usage
        self._calls = {call.id: call for call in reply.calls}
        facts = [f"{show_count(usage.prompt_tokens)} in, {show_count(usage.completion_tokens)} out"]
        facts += [show_cost(usage.cost_usd)] if usage.cost_usd else []
        facts += [show_duration(reply.latency_s)] if reply.latency_s else []
        facts += [f"{reply.attempts} requests"] if reply.attempts > 1 else []
        facts += [f"ended by {reply.finish_reason}"] if reply.finish_reason not in ("stop", "tool_calls") else []
        complaint = event.format_error or (f"declined: {reply.refusal}" if reply.refusal else "")
        return Turn(
            event.turn,
            text=cut(reply.text, TEXT_CHARS)[0],
            reasoning=cut(reply.reasoning or "", TEXT_CHARS)[0],
            facts=facts if usage.prompt_tokens or reply.latency_s else [],
            complaint=one_line(complaint, 600),
        )

    def _act(self, turn: Turn, event: ActionEvent) -> None:
        arguments = event.arguments
        title = (
            str(arguments.get("path", "")) if event.name == "write_file" else action_words(event.name, arguments, 160)
        )
        step = Step(one_line(event.name, 40), one_line(title, 160))
        if event.name == "bash":
            command = str(arguments.get("command", ""))
            if "\n" in command.strip() or len(command) > 150:
                step.code, step.code_lines = self._html.code(command, language="bash"), _lines(command)
        elif event.name not in ("write_file", "edit_file", "compile", "verify", "profile", "submit") and arguments:
            shown = json.dumps(arguments, indent=1, ensure_ascii=True)
            step.code, step.code_lines = output(shown), _lines(shown)
        self._writes[event.call_id] = event
        self._steps[event.call_id] = step
        turn.steps.append(step)

    def _observe(self, turn: Turn, event: ObservationEvent) -> None:
        step = self._steps.pop(event.call_id, None)
        if step is None:  # a call that could not be begun has no action: what the model wrote is shown as it is
            call = self._calls.get(event.call_id)
            step = Step(one_line(event.name, 40), one_line(call.arguments if call else "", 160))
            turn.steps.append(step)
        step.status, step.words = event.status, outcome_words(event)
        step.took = show_duration(event.duration_s) if event.duration_s >= 0.05 else ""
        step.log = one_line(event.log or "", 200)
        if event.text.strip():
            step.output, step.output_lines = output(event.text), _lines(event.text)
        self._file(step, event)
        self._report(step, event)

    def _file(self, step: Step, event: ObservationEvent) -> None:
        """A new file is shown as code, a changed one as what changed."""
        action = self._writes.pop(event.call_id, None)
        if action is None or action.name not in ("write_file", "edit_file") or event.status != "ok":
            return
        path, arguments = str(action.arguments.get("path", "")), action.arguments
        if action.name == "write_file":
            self._files.write(path, str(arguments.get("content", "")))
        else:
            self._files.edit(path, str(arguments.get("old", "")), str(arguments.get("new", "")))
        step.size, step.words, step.output = step.words, "", NONE
        content = str(arguments.get("content", ""))
        if event.diff and not event.diff.startswith("--- /dev/null"):
            step.changes = diff(event.diff)
        elif action.name == "write_file":
            step.code, step.code_lines = self._html.code(content, language=language_of(path)), _lines(content)

    def _report(self, step: Step, event: ObservationEvent) -> None:
        if not event.report:
            return
        build = event.report.get("build") if isinstance(event.report.get("build"), dict) else event.report
        step.diagnostics = _diagnostics((build or {}).get("diagnostics"))
        if event.name == "profile":
            judged = judged_of(event.report)
            if judged.weakest:
                step.timing = judged
                step.since = self._files.since_last()


class Files:
    """What the model wrote through write_file and edit_file; changes made by commands are not seen here."""

    def __init__(self) -> None:
        self._now: dict[str, str] = {}
        self._then: dict[str, str] | None = None

    def write(self, path: str, content: str) -> None:
        if len(self._now) < FILES_AT_MOST or path in self._now:
            self._now[path] = content

    def edit(self, path: str, old: str, new: str) -> None:
        before = self._now.get(path)
        if before is not None and old and before.count(old) == 1:
            self._now[path] = before.replace(old, new)

    def since_last(self) -> Markup:
        """What changed since the last call; nothing at the first one, where everything is new."""
        before, self._then = self._then, dict(self._now)
        if before is None:
            return NONE
        changed = [path for path in self._now if self._now[path] != before.get(path, "")]
        return NONE.join(_changed(path, before.get(path, ""), self._now[path]) for path in changed)


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def _changed(path: str, old: str, new: str) -> Markup:
    if len(old) + len(new) > DIFF_CHARS or _alike(old, new) > DIFF_PAIRS:
        return Markup("<p><code>{}</code> changed; it is too much to compare here.</p>").format(safe(path))
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "a", "b", lineterm="")
    return Markup("<p><code>{}</code></p>{}").format(safe(path), diff("\n".join(lines)))


def _alike(old: str, new: str) -> int:
    before, after = Counter(old.splitlines()), Counter(new.splitlines())
    return sum(count * after[line] for line, count in before.items())


def _diagnostics(raw: Any) -> list[Diagnostic]:
    found = []
    for item in raw[:DIAGNOSTICS_AT_MOST] if isinstance(raw, list | tuple) else ():
        try:
            told = Diagnostic.model_validate(item)
        except ValidationError:
            continue
        found.append(told.model_copy(update={"file": one_line(told.file), "message": one_line(told.message, 400)}))
    return found

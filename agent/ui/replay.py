"""Renders events one by one for `agent show`: what the model thought, did and saw, folded unless asked in full."""

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from agent.config import Config
from agent.tasks.task import Task
from agent.trajectory.events import (
    ActionEvent,
    Event,
    MessageEvent,
    ObservationEvent,
    ReplyEvent,
    Resumed,
    RunStart,
    SnapshotEvent,
    StopEvent,
    VerdictEvent,
)
from agent.ui.console import one_line, safe
from agent.ui.live import highlighted
from agent.ui.narration import cut_off_words
from agent.ui.quantities import show_cost, show_count, show_duration, show_ratio
from agent.ui.summaries import STOP_WORDS, action_words, outcome_words, rules_words, verdict_of, verdict_words

_FOLD_LINES: Final = 14
_TEXT_LINES: Final = 30
_LEXERS: Final = {".cpp": "cpp", ".cu": "cpp", ".h": "cpp", ".cuh": "cpp", ".hpp": "cpp", ".py": "python"}


class Replayer:
    """Prints events to `console`; `full` shows everything, outputs from the run's logs/ included."""

    def __init__(self, console: Console, run: Path, *, full: bool, diff: bool) -> None:
        self._console = console
        self._run = run
        self._full = full
        self._diff = diff
        # A snapshot is recorded before the observation of the action that led to it, and shown after it.
        self._best = ""
        # Into a pipe or a file every line stays whole.
        self._wraps = console.is_terminal

    def heading(self, task: Task, config: Config) -> None:
        self._console.print(Text(safe(task.name), style="bold"))
        self._fact("task", f"{task.path}")
        self._fact("rules", rules_words(config.judge))
        self._fact("run", str(self._run))

    def show_all(self, events: Iterable[Event]) -> int:
        """Returns how many events there were."""
        count = 0
        for event in events:
            self.show(event)
            count += 1
        return count

    def show(self, event: Event) -> None:
        match event:
            case RunStart():
                self._start(event)
            case Resumed():
                cut = cut_off_words(event)
                self._rule(f"resumed {_clock(event.t)}{', ' if cut else ''}{cut}", style="yellow")
            case MessageEvent():
                self._message(event)
            case ReplyEvent():
                self._reply(event)
            case ActionEvent():
                self._action(event)
            case ObservationEvent():
                self._observation(event)
            case SnapshotEvent() if event.is_best:
                self._best = "verified, not yet timed" if event.speedup is None else show_ratio(event.speedup)
            case StopEvent():
                self._stop(event)
            case VerdictEvent():
                self._verdict(event)
            case _:
                return

    def _start(self, event: RunStart) -> None:
        self._fact("started", f"{_clock(event.t)}, cuda-agent {event.agent_version}")
        self._fact("model", ", ".join(f"{k} {v}" for k, v in _scalars(event.backend)))
        self._fact("sandbox", ", ".join(f"{k} {v}" for k, v in _scalars(event.sandbox)))
        self._fact("actions", ", ".join(tool.name for tool in event.tools))

    def _message(self, event: MessageEvent) -> None:
        message = event.message
        who = {"person": "a person", "format_error": "harness, unusable reply", "limit": "harness, limit"}
        head = who.get(event.origin, f"harness, {message.role} message")
        size = f"{show_count(len(message.content))} characters"
        style = "yellow" if event.origin != "harness" else "dim"
        self._console.print(Text(f"→ {head} ({size})", style=style))
        if event.origin != "harness" or self._full:
            self._body(message.content, limit=_TEXT_LINES)

    def _reply(self, event: ReplyEvent) -> None:
        reply, usage = event.reply, event.reply.usage
        facts = [f"turn {event.turn}"]
        if usage.prompt_tokens or usage.completion_tokens:
            tokens = f"{show_count(usage.prompt_tokens)} in, {show_count(usage.completion_tokens)} out"
            facts += [tokens, show_duration(reply.latency_s), show_cost(usage.cost_usd)]
        if reply.attempts > 1:
            facts.append(f"{reply.attempts} requests, {show_duration(reply.waited_s)} waiting")
        if reply.finish_reason not in ("stop", "tool_calls"):
            facts.append(f"finish reason {reply.finish_reason}")
        self._rule("  ".join(facts), style="bold cyan")
        if reply.reasoning:
            self._body(reply.reasoning, limit=_FOLD_LINES, style="dim italic")
        if reply.text.strip():
            self._body(reply.text, limit=_TEXT_LINES, indent=0)
        if reply.refusal:
            self._body(reply.refusal, limit=_TEXT_LINES, style="red")
        if event.format_error:
            self._console.print(Text(f"unusable: {one_line(event.format_error)}", style="yellow"))

    def _action(self, event: ActionEvent) -> None:
        arguments = event.arguments
        words = "" if event.name == "bash" else action_words(event.name, arguments)
        line = Text(f"→ {event.name}", style="bold")
        line.append(f"  {words}", style="not bold")
        self._line(line)
        match event.name:
            case "bash":
                self._code(str(arguments.get("command", "")), "bash")
            case "write_file" if not self._diff:
                self._code(str(arguments.get("content", "")), _lexer(arguments))
            case "edit_file" if not self._diff:
                removed = [f"-{line}" for line in str(arguments.get("old", "")).splitlines()]
                added = [f"+{line}" for line in str(arguments.get("new", "")).splitlines()]
                self._code("\n".join(removed + added), "diff")
            case _:
                return

    def _observation(self, event: ObservationEvent) -> None:
        good = event.status == "ok" and (event.report or {}).get("status") not in ("rejected", "failed", "error")
        words = outcome_words(event) or event.status
        head = Text(f"  {'✓' if good else '✗'} ", style="green" if good else "red")
        head.append(words, style="green" if good else "red")
        head.append(f"  {show_duration(event.duration_s)}", style="dim")
        head.append(f"  {event.log}" if event.log else "", style="dim")
        self._line(head)
        if self._best:
            self._line(Text(f"  ★ best so far: {self._best}", style="bold magenta"))
            self._best = ""
        if self._diff and event.diff:
            self._code(event.diff, "diff")
        if self._full and event.log and self._log(event.log):
            return
        self._body(event.text, limit=_FOLD_LINES, style="dim", indent=4)

    def _stop(self, event: StopEvent) -> None:
        several = "\n" in event.detail.strip()
        detail = f" ({safe(event.detail)})" if event.detail and not several else ""
        self._rule(f"stopped: {STOP_WORDS[event.reason]}{detail}", style="blue")
        if several:
            self._body(event.detail, limit=_TEXT_LINES, style="dim")

    def _verdict(self, event: VerdictEvent) -> None:
        subject = "final state" if event.subject == "final" else "best submission"
        verdict = verdict_of(event)
        good = verdict is not None and verdict.verdict == "accepted"
        words = one_line(verdict_words(verdict), 400) if verdict else "not readable"
        mark = "✓" if good else "✗"
        self._line(Text(f"{mark} verdict on the {subject}: {words}", style="green" if good else "red"))

    def _log(self, name: str) -> bool:
        """Copy a complete output to the terminal; False where it is not there (or not inside the run)."""
        path = (self._run / name).resolve()
        if not path.is_relative_to(self._run.resolve()) or not path.is_file():
            return False
        self._console.file.flush()
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                sys.stdout.write(f"    {safe(line.rstrip(chr(10)))}\n")
        return True

    def _body(self, text: str, *, limit: int, style: str = "", indent: int = 2) -> None:
        body = self._folded(safe(text.strip("\n")), limit)
        if body.strip():
            self._indented(Text(body, style=style), indent)

    def _code(self, text: str, lexer: str) -> None:
        body = self._folded(safe(text.rstrip("\n")), _FOLD_LINES)
        self._indented(highlighted(body, lexer), 4)

    def _indented(self, text: Text, indent: int) -> None:
        """Without the padding that rich's own Padding leaves at the ends of lines; wrapped only for a terminal."""
        width = max(20, self._console.width - indent)
        lines = text.wrap(self._console, width) if self._wraps else text.split(allow_blank=True)
        for line in lines:
            line.rstrip()
            self._console.print(Text(" " * indent) + line, soft_wrap=True)

    def _folded(self, text: str, limit: int) -> str:
        lines = text.split("\n")
        if self._full or len(lines) <= limit + 2:
            return text
        ellipsis = "…"
        hidden = len(lines) - limit
        head, tail = lines[: limit - limit // 3], lines[-(limit // 3) :]
        return "\n".join([*head, f"{ellipsis} {hidden} lines folded, --full shows them {ellipsis}", *tail])

    def _rule(self, text: str, *, style: str) -> None:
        self._console.print()
        title = Text(safe(text), style=style)
        if title.cell_len > self._console.width - 4:
            self._line(title)
        else:
            self._console.print(Rule(title, style="dim", align="left"))

    def _line(self, text: Text) -> None:
        self._console.print(text, soft_wrap=not self._wraps)

    def _fact(self, name: str, value: str) -> None:
        self._console.print(Text.assemble((f"  {name:<8} ", "dim"), safe(value)), soft_wrap=True)


def _lexer(arguments: dict[str, Any]) -> str:
    return _LEXERS.get(Path(str(arguments.get("path", ""))).suffix, "text")


def _scalars(data: dict[str, Any]) -> list[tuple[str, str]]:
    pairs = [(k.replace("_", " "), v) for k, v in data.items() if isinstance(v, str | int | float)]
    return [(k, one_line(str(v))) for k, v in pairs if v not in ("", False)]


def _clock(t: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(t))

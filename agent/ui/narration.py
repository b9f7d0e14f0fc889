"""Turns events into the lines that the live view and the plain view print, one line for one thing that happened."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from agent.trajectory.events import (
    ActionEvent,
    Event,
    MessageEvent,
    ObservationEvent,
    ReplyEvent,
    Resumed,
    SnapshotEvent,
    StopEvent,
    VerdictEvent,
)
from agent.ui.console import one_line
from agent.ui.quantities import show_count, show_duration, show_ratio
from agent.ui.summaries import (
    STOP_WORDS,
    action_words,
    outcome_words,
    verdict_of,
    verdict_words,
)

Tone = Literal["turn", "ok", "bad", "warn", "info", "best"]


@dataclass(frozen=True)
class Line:
    """`head` is short (an action's name), `text` what it is about, `tail` what came of it, `took_s` its time."""

    tone: Tone
    head: str
    text: str = ""
    tail: str = ""
    took_s: float | None = None


@dataclass
class Narrator:
    """Remembers the action that is under way, so that an action and its outcome become one line."""

    _open: dict[str, ActionEvent] = field(default_factory=dict)
    _best: list[Line] = field(default_factory=list)
    """A snapshot is recorded before the observation of the action that led to it, and told after it."""

    def lines(self, event: Event) -> Iterator[Line]:
        match event:
            case Resumed():
                yield Line("warn", "resumed", cut_off_words(event))
            case MessageEvent():
                yield from _message(event)
            case ReplyEvent():
                yield from _reply(event)
            case ActionEvent():
                self._open[event.call_id] = event
            case ObservationEvent():
                yield self._observation(event)
                yield from self._best
                self._best.clear()
            case SnapshotEvent() if event.is_best:
                known = event.speedup is not None
                words = show_ratio(event.speedup) if known else "verified, not yet timed"
                self._best.append(Line("best", "best so far", words))
            case StopEvent():
                detail = f" ({one_line(event.detail)})" if event.detail else ""
                tone: Tone = "bad" if event.reason.infrastructure else "info"
                yield Line(tone, "stopped", STOP_WORDS[event.reason] + detail)
            case VerdictEvent():
                yield _verdict(event)
            case _:
                return

    def _observation(self, event: ObservationEvent) -> Line:
        action = self._open.pop(event.call_id, None)
        words = action_words(event.name, action.arguments) if action else ""
        name = one_line(event.name, 40)  # of a call that is none of ours it is whatever the model wrote
        return Line(_tone(event), name, words, outcome_words(event), event.duration_s)


def _tone(event: ObservationEvent) -> Tone:
    if event.status == "ok":
        rejected = (event.report or {}).get("status") in ("rejected", "failed", "error", "no_sources")
        return "bad" if rejected else "ok"
    return "warn" if event.status in ("denied", "not_executed") else "bad"


def cut_off_words(event: Resumed) -> str:
    count = len(event.pending)
    return f"{count} action{'s' if count != 1 else ''} had been cut off" if count else ""


def _message(event: MessageEvent) -> Iterator[Line]:
    heads = {"person": "message to the model", "format_error": "unusable reply", "refusal": "refused", "limit": "limit"}
    if head := heads.get(event.origin):
        yield Line("info" if event.origin == "person" else "warn", head, one_line(event.message.content))


def _reply(event: ReplyEvent) -> Iterator[Line]:
    reply = event.reply
    thought = one_line(reply.text or reply.reasoning or reply.refusal or "", 160)
    usage = reply.usage.prompt_tokens + reply.usage.completion_tokens
    facts = [f"{show_count(usage)} tokens"] if usage else []
    if reply.attempts > 1:
        facts.append(f"{reply.attempts} requests, {show_duration(reply.waited_s)} waiting")
    yield Line("turn", f"turn {event.turn}", thought, ", ".join(facts), reply.latency_s if usage else None)


def _verdict(event: VerdictEvent) -> Line:
    subject = "final state" if event.subject == "final" else "best submission"
    verdict = verdict_of(event)
    if verdict is None:
        return Line("bad", "judge", subject, "no readable verdict")
    tone: Tone = "ok" if verdict.verdict == "accepted" else "bad"
    return Line(tone, "judge", subject, one_line(verdict_words(verdict), 200))

"""The counters of a run, folded from its events: the same live, after a crash and for a reader of the finished log."""

import hashlib
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from agent.backends.base import ToolCall
from agent.trajectory.events import (
    ActionEvent,
    Event,
    MessageEvent,
    ObservationEvent,
    ReplyEvent,
    Resumed,
    RunEnd,
    RunStart,
    SnapshotEvent,
    StopEvent,
    VerdictEvent,
)

MOST_PERIOD: Final = 4
"""A model that goes round in circles is noticed where the circle has at most so many actions."""
_REMEMBERED: Final = 256
_LOG_NAMES: Final = re.compile(r"\d{4}-\w+\.log")


@dataclass
class Ledger:
    """What the log says so far. Changed by `apply` only, so that a rebuilt ledger equals the live one."""

    seq: int = 0
    started: RunStart | None = None
    messages: int = 0
    turns: int = 0
    actions: int = 0
    format_errors: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0
    repeats: int = 0
    period: int = 1
    """The last `period` actions with their outcomes came `repeats` times in a row."""
    active_s: float = 0.0
    played_s: float = 0.0
    """`active_s` at the stop: a reopened run has the time that its first judgement took once more."""
    warned: bool = False
    refused: str | None = None
    refusals: int = 0
    """Replies in a row that declined to work on the task."""
    owes_answer: bool = False
    """The last reply declined, and nothing has been said to that."""
    owes_complaint: bool = False
    complaint: str | None = None
    """What the backend's own parser found wrong with the last reply, in words for the model."""
    truncated: bool = False
    pending: dict[str, ToolCall] = field(default_factory=dict)
    """Calls of the last reply without an observation, in order."""
    observed: int = 0
    """Calls of the last reply that have one."""
    begun: ActionEvent | None = None
    """The action that was begun and has no observation."""
    call_ids: set[str] = field(default_factory=set)
    verified: set[str] = field(default_factory=set)
    """sha256 of every submission that was verified."""
    best_speedup: float | None = None
    best_sha256: str = ""
    submit_warned: bool = False
    """A submit was turned down since the last verification."""
    submitted: bool = False
    stop: StopEvent | None = None
    verdicts: dict[str, VerdictEvent] = field(default_factory=dict)
    end: RunEnd | None = None
    _last_t: float = 0.0
    _steps: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def total_cost_usd(self) -> float | None:
        """None as soon as one reply had no known price."""
        return None if self.unpriced else self.cost_usd

    def apply(self, event: Event) -> None:
        self.seq = event.seq + 1
        if self._last_t and not isinstance(event, Resumed):
            waited_s = event.device_wait_s if isinstance(event, ObservationEvent) else 0.0
            self.active_s += max(0.0, event.t - self._last_t - waited_s)
        self._last_t = event.t
        match event:
            case RunStart():
                self.started = event
            case MessageEvent():
                self._message(event)
            case ReplyEvent():
                self._reply(event)
            case ActionEvent():
                self.actions += 1
                self.begun = event
            case ObservationEvent():
                self._observation(event)
            case SnapshotEvent():
                self._snapshot(event)
            case StopEvent():
                self.stop, self.played_s = event, self.active_s
            case VerdictEvent():
                self.verdicts[event.subject] = event
            case RunEnd():
                self.end = event
                if self.stop is None:  # a full disk did not take it
                    self.played_s = self.active_s
            case Resumed() if event.reopens:
                self.active_s = self.played_s
                self.stop = self.end = None
                self.verdicts = {}

    def _message(self, event: MessageEvent) -> None:
        self.messages += 1
        self.warned = self.warned or event.origin == "limit"
        if event.origin == "format_error":
            self.owes_complaint = False
        if event.origin == "refusal":
            self.owes_answer = False

    def _reply(self, event: ReplyEvent) -> None:
        reply = event.reply
        self.turns = event.turn
        self.format_errors = self.format_errors + 1 if event.format_error else 0
        self.owes_complaint = event.format_error is not None and not reply.calls
        found = reply.raw.get("format_error")
        self.complaint = found if isinstance(found, str) else None
        self.truncated = reply.finish_reason == "length"
        self.refused = reply.refusal or ("" if reply.finish_reason == "refusal" else None)
        self.refusals = 0 if self.refused is None else self.refusals + 1
        self.owes_answer = self.refused is not None and not reply.calls
        self.prompt_tokens += reply.usage.prompt_tokens
        self.completion_tokens += reply.usage.completion_tokens
        self.cost_usd += reply.usage.cost_usd or 0.0
        self.unpriced += reply.usage.cost_usd is None
        self.pending, self.observed = {call.id: call for call in reply.calls}, 0
        self.call_ids.update(self.pending)

    def _observation(self, event: ObservationEvent) -> None:
        call = self.pending.pop(event.call_id, None)
        self.begun, self.observed = None, self.observed + 1
        self._steps.append(step_digest(event, call.arguments if call else ""))
        self.repeats, self.period = longest_repetition(tuple(self._steps))
        if event.name == "submit":
            self.submitted = self.submitted or event.status == "ok"
            self.submit_warned = self.submit_warned or event.status == "failed"

    def _snapshot(self, event: SnapshotEvent) -> None:
        self.verified.add(event.submission_sha256)
        self.submit_warned = False
        if event.is_best:
            self.best_speedup, self.best_sha256 = event.speedup, event.submission_sha256


def longest_repetition(steps: Sequence[str]) -> tuple[int, int]:
    """(times, period): how often the last `period` steps stand at the end in a row, for the period with most times."""
    best = (1 if steps else 0, 1)
    for period in range(1, MOST_PERIOD + 1):
        last, times = steps[-period:], 0
        end = len(steps)
        while end >= period and steps[end - period : end] == last:
            times, end = times + 1, end - period
        best = max(best, (times, -period), key=lambda found: (found[0], -abs(found[1])))
    return best[0], abs(best[1])


def step_digest(event: ObservationEvent, arguments: str) -> str:
    """Equal for the same action with the same visible outcome; the running number in a log's name does not count."""
    text = _LOG_NAMES.sub("LOG", event.text)
    parts = "\0".join((event.name, arguments, event.status, text))
    return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()

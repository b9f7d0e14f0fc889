"""What a person wants to know while a run goes on, folded from its events: turn, tokens, cost, best speed-up, diffs."""

from dataclasses import dataclass, field

from agent.backends.base import Usage
from agent.trajectory.events import (
    ActionEvent,
    Event,
    ObservationEvent,
    ReplyEvent,
    Resumed,
    RunEnd,
    RunStart,
    SnapshotEvent,
    StopEvent,
    StopReason,
    VerdictEvent,
)


@dataclass
class Progress:
    """Running totals; `add` takes events in order, and any prefix of a log gives a meaningful state."""

    started_at: float | None = None
    """Of the current stretch of work (run start or the last resumption), seconds since the epoch."""
    last_at: float | None = None
    run_id: str = ""
    turn: int = 0
    replies: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = None
    best_speedup: float | None = None
    best_turn: int | None = None
    submission_sha256: str = ""
    actions: dict[str, int] = field(default_factory=dict)
    diffs: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    """Turn -> (path, unified diff) of its edits."""
    open_call: ActionEvent | None = None
    stop: StopEvent | None = None
    verdicts: dict[str, VerdictEvent] = field(default_factory=dict)
    end: RunEnd | None = None
    _paths: dict[str, str] = field(default_factory=dict)
    _earlier_s: float = 0.0
    _unpriced: bool = False

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def reason(self) -> StopReason | None:
        return self.end.reason if self.end else self.stop.reason if self.stop else None

    @property
    def elapsed_s(self) -> float:
        """Time at work: the pause between a crash and its resumption is not counted."""
        if self.started_at is None or self.last_at is None:
            return self._earlier_s
        return self._earlier_s + max(0.0, self.last_at - self.started_at)

    def add(self, event: Event) -> None:
        if isinstance(event, Resumed):
            self._earlier_s, self.started_at, self.end = self.elapsed_s, None, None
            self.stop = self.open_call = None
            self.verdicts = {} if event.reopens else self.verdicts
        self.started_at = event.t if self.started_at is None else self.started_at
        self.last_at = event.t
        match event:
            case RunStart():
                self.run_id = event.run_id
            case ReplyEvent():
                self.turn = event.turn
                self.replies += 1
                self._spend(event.reply.usage)
            case ActionEvent():
                self._act(event)
            case ObservationEvent():
                self._observe(event)
            case SnapshotEvent() if event.is_best:
                self.best_speedup, self.best_turn = event.speedup, event.turn
                self.submission_sha256 = event.submission_sha256
            case StopEvent():
                self.stop = event
            case VerdictEvent():
                self.verdicts[event.subject] = event
            case RunEnd():
                self.end = event
            case _:
                pass

    def _spend(self, usage: Usage) -> None:
        self.prompt_tokens += usage.prompt_tokens
        self.completion_tokens += usage.completion_tokens
        # One call without a price makes the sum unknown: a partial sum would look like a low one.
        self._unpriced = self._unpriced or usage.cost_usd is None
        self.cost_usd = None if self._unpriced else (self.cost_usd or 0.0) + (usage.cost_usd or 0.0)

    def _act(self, event: ActionEvent) -> None:
        self.turn = event.turn
        self.open_call = event
        self.actions[event.name] = self.actions.get(event.name, 0) + 1
        path = event.arguments.get("path")
        if isinstance(path, str):
            self._paths[event.call_id] = path

    def _observe(self, event: ObservationEvent) -> None:
        if self.open_call and self.open_call.call_id == event.call_id:
            self.open_call = None
        if event.diff:
            self.diffs.setdefault(event.turn, []).append((self._paths.get(event.call_id, ""), event.diff))

"""The events of an episode: one frozen model per line of events.jsonl, the only truth about a run.

Everything else (messages for the model, report, table, exports, resumption) is made from these. `seq` counts from 0
without gaps; `t` is seconds since the Unix epoch. A torn last line is work still owed, never a crash.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agent.backends.base import Message, Reply, ToolSchema

EVENTS_VERSION = 1


class StopReason(StrEnum):
    """Why an episode ended. The best verified submission is judged whatever the reason."""

    SUBMITTED = "submitted"
    """The model called submit."""
    TURNS = "turns"
    """The turn limit was reached."""
    TIME = "time"
    """The wall-clock budget, less the reserve for the final judgement, was used up."""
    TOKENS = "tokens"
    """The token budget was used up."""
    COST = "cost"
    """The cost budget was used up."""
    CONTEXT = "context_overflow"
    """The conversation no longer fits the model's window."""
    FORMAT = "format_errors"
    """Several unusable replies in a row."""
    STUCK = "stuck"
    """The same action gave the same observation again and again."""
    REFUSED = "refused"
    """The model declined to work on the task."""
    SCRIPT_END = "script_end"
    """A replayed script had no further turns."""
    ROLLOUT_END = "rollout_end"
    """The trainer that owns the policy ended its rollout."""
    BACKEND = "backend_error"
    """The language model's side failed for good (infrastructure)."""
    SANDBOX = "sandbox_died"
    """The sandbox was lost (infrastructure)."""
    OOM = "oom"
    """The sandbox was killed for memory."""
    DISK_FULL = "disk_full"
    """The host could not record any more (infrastructure)."""
    CANCELLED = "cancelled"
    """A person or a signal asked to stop."""
    INTERNAL = "internal_error"
    """A fault in this program."""

    @property
    def infrastructure(self) -> bool:
        return self in _INFRASTRUCTURE

    @property
    def from_outside(self) -> bool:
        """The sandbox, a person or trouble around the run ended it, not what the model wanted, nor one of its limits:
        it can be gone on with.
        """
        return self.infrastructure or self in (StopReason.CANCELLED, StopReason.OOM)


_INFRASTRUCTURE = frozenset({StopReason.BACKEND, StopReason.SANDBOX, StopReason.DISK_FULL, StopReason.INTERNAL})


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    seq: int
    t: float


class RunStart(_Event):
    """First event: what was asked for and with what."""

    type: Literal["run_start"] = "run_start"
    version: int = EVENTS_VERSION
    run_id: str
    task_sha256: str
    agent_version: str
    backend: dict[str, Any]
    sandbox: dict[str, Any]
    tools: tuple[ToolSchema, ...]


class Resumed(_Event):
    """The run goes on after a crash or a pause; `pending` call ids got a synthetic observation.

    `reopens`: it had been stopped, perhaps judged and ended; what was recorded of that counts no more.
    """

    type: Literal["resumed"] = "resumed"
    pending: tuple[str, ...] = ()
    reopens: bool = False


class MessageEvent(_Event):
    """A message that the harness or a person added (system, first task, format complaint, a person's word)."""

    type: Literal["message"] = "message"
    message: Message
    origin: Literal["harness", "format_error", "refusal", "person", "limit"] = "harness"


class ReplyEvent(_Event):
    """One answer of the model, raw included, whether or not it could be used."""

    type: Literal["reply"] = "reply"
    turn: int
    reply: Reply
    format_error: str | None = None
    condensed_turns: int = 0
    """How many of the turns before it the model was not shown as they were, because its window is short."""


class ActionEvent(_Event):
    """One action about to be executed, with validated arguments.

    `before_sha256` belongs to edit_file: the file as it was, so that a resumed run knows whether the edit was made.
    """

    type: Literal["action"] = "action"
    turn: int
    call_id: str
    name: str
    arguments: dict[str, Any]
    before_sha256: str | None = None


class ObservationEvent(_Event):
    """What came back: `text` is exactly what the model sees; the complete output is in `log` (relative to the run)."""

    type: Literal["observation"] = "observation"
    turn: int
    call_id: str
    name: str
    text: str
    status: Literal["ok", "failed", "timeout", "oom", "invalid", "denied", "not_executed"]
    exit_code: int | None = None
    duration_s: float = 0.0
    device_wait_s: float = 0.0
    """What a measurement waited for its device; not the episode's time."""
    report: dict[str, Any] | None = None
    log: str | None = None
    diff: str | None = None


class SnapshotEvent(_Event):
    """A verified submission was copied to best/ (is_best) because its speed-up is the highest so far."""

    type: Literal["snapshot"] = "snapshot"
    turn: int
    submission_sha256: str
    speedup: float | None
    is_best: bool


class StopEvent(_Event):
    """The loop ended; judging comes next."""

    type: Literal["stop"] = "stop"
    reason: StopReason
    detail: str = ""


class VerdictEvent(_Event):
    """The judge's report for one submission: the final state of the workspace, or the best one of the trajectory."""

    type: Literal["verdict"] = "verdict"
    subject: Literal["final", "best"]
    submission_sha256: str
    verdict: dict[str, Any]


class RunEnd(_Event):
    """Last event, unless the run is reopened. `reward` is None where infrastructure failed or nothing was judged."""

    type: Literal["run_end"] = "run_end"
    reason: StopReason
    reward: int | None
    turns: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    wall_s: float


Event = Annotated[
    RunStart
    | Resumed
    | MessageEvent
    | ReplyEvent
    | ActionEvent
    | ObservationEvent
    | SnapshotEvent
    | StopEvent
    | VerdictEvent
    | RunEnd,
    Field(discriminator="type"),
]
EVENT_ADAPTER: TypeAdapter[Event] = TypeAdapter(Event)

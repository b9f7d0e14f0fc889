"""One stored episode in memory: its turns, the conversation as the model saw it, and its verdict; or why it is skipped.

The log is read one event at a time. Token ids are held in arrays of 8 bytes an id and nowhere else, because the prompts
of a long episode hold many millions of them.
"""

import hashlib
import json
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pydantic import ValidationError

from agent.backends.base import Message, Reply
from agent.errors import AgentError, ConfigError, RecordError
from agent.judging.reports import Verdict
from agent.loop.conversation import Conversation
from agent.tasks.task import Task
from agent.trajectory.events import (
    EVENT_ADAPTER,
    EVENTS_VERSION,
    Event,
    MessageEvent,
    ObservationEvent,
    ReplyEvent,
    Resumed,
    RunEnd,
    RunStart,
)
from agent.trajectory.folder import RunFolder
from agent.trajectory.reader import read_events
from agent.trajectory.stored import Ending, ending_of

VERDICT_VERSION: Final = 1
DETAIL_CHARS: Final = 300
_WITHOUT_IDS: Final[dict[str, Any]] = {
    "prompt_token_ids": None,
    "completion_token_ids": None,
    "logprobs": None,
    "raw": {},
}

SkipReason = Literal["unreadable", "damaged", "other_version", "unknown_event", "unknown_field", "no_verdict"]
Ids: TypeAlias = "array[int]"


class Skipped(Exception):
    """A run that cannot be exported; `reason` is what the data card counts."""

    def __init__(self, reason: SkipReason, detail: str) -> None:
        super().__init__(detail)
        self.reason: SkipReason = reason
        self.detail = detail[:DETAIL_CHARS]


@dataclass(frozen=True)
class Tokens:
    """Ids of one call as the server gave them; `logprobs` has one value for each completion id, or is None."""

    prompt: Ids
    completion: Ids
    logprobs: "array[float] | None"


@dataclass
class Turn:
    """One reply (without ids where `tokens` has them) and the observations of its calls, in order."""

    number: int
    t: float
    reply: Reply
    format_error: str | None
    parser_error: bool
    """The backend's own parser could not read an action: a broken schema in the text protocol."""
    tokens: Tokens | None
    condensed_turns: int = 0
    """Earlier turns that the model was not shown as they were."""
    observations: list[ObservationEvent] = field(default_factory=list)


@dataclass(frozen=True)
class Said:
    """A message that the harness or a person added."""

    t: float
    message: Message
    origin: str


@dataclass(frozen=True)
class Episode:
    """Everything that filters and formats look at. `record` is verdict.json as it stands."""

    folder: RunFolder
    task: Task
    start: RunStart
    end: RunEnd | None
    ending: Ending
    record: dict[str, Any]
    turns: tuple[Turn, ...]
    said: tuple[Said, ...]
    messages: tuple[Message, ...]
    resumed: int
    events_sha256: str

    @property
    def run_id(self) -> str:
        return self.start.run_id


def read_episode(folder: RunFolder) -> Episode:
    """A finished episode. Raises Skipped with the reason for anything else; never another error of the data."""
    record, ending = _verdict(folder)
    try:
        task = folder.task()
        folded = _fold(folder.events)
    except RecordError:
        raise diagnose(folder.events) from None
    except (ConfigError, OverflowError, RecursionError) as error:
        raise Skipped("damaged", str(error)) from None
    except (AgentError, OSError) as error:
        raise Skipped("unreadable", str(error)) from None
    if folded.start is None:
        raise diagnose(folder.events)
    if folded.reopened:  # and killed before the old verdict was gone
        raise Skipped("no_verdict", "the run was reopened and has not ended again")
    return Episode(
        folder=folder,
        task=task,
        start=folded.start,
        end=folded.end,
        ending=ending,
        record=record,
        turns=tuple(folded.turns),
        said=tuple(folded.said),
        messages=tuple(folded.conversation.messages),
        resumed=folded.resumed,
        events_sha256=_sha256(folder.events),
    )


def diagnose(path: Path) -> Skipped:
    """Why a log cannot be read: written by another version, an unknown type or field, or damaged."""
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                found = _diagnose_line(raw, number)
                if found is not None:
                    return found
    except OSError as error:
        return Skipped("unreadable", str(error))
    return Skipped("damaged", "the log has no run_start, or a gap between two events")


@dataclass
class _Folded:
    start: RunStart | None = None
    end: RunEnd | None = None
    turns: list[Turn] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    conversation: Conversation = field(default_factory=Conversation)
    resumed: int = 0
    reopened: bool = False

    def apply(self, event: Event) -> None:
        match event:
            case RunStart():
                if event.version != EVENTS_VERSION:
                    raise Skipped("other_version", f"events of version {event.version}, not {EVENTS_VERSION}")
                self.start = event
            case MessageEvent():
                self.said.append(Said(event.t, event.message, event.origin))
            case ReplyEvent():
                self.turns.append(_turn(event))
            case ObservationEvent():
                if self.turns:
                    self.turns[-1].observations.append(event)
            case Resumed():
                self.resumed += 1
                self.reopened = self.reopened or event.reopens
                self.end = None if event.reopens else self.end
            case RunEnd():
                self.end, self.reopened = event, False
        self.conversation.apply(event)


def _fold(path: Path) -> _Folded:
    folded = _Folded()
    for event in read_events(path):
        folded.apply(event)
    return folded


def _turn(event: ReplyEvent) -> Turn:
    reply, tokens = event.reply, _tokens(event.reply)
    if tokens is not None:
        reply = reply.model_copy(update=_WITHOUT_IDS)
    return Turn(
        number=event.turn,
        t=event.t,
        reply=reply,
        format_error=event.format_error,
        parser_error=bool(event.reply.raw.get("format_error")),
        tokens=tokens,
        condensed_turns=event.condensed_turns,
    )


def _tokens(reply: Reply) -> Tokens | None:
    if reply.prompt_token_ids is None or reply.completion_token_ids is None:
        return None
    logprobs = None if reply.logprobs is None else array("d", reply.logprobs)
    return Tokens(array("q", reply.prompt_token_ids), array("q", reply.completion_token_ids), logprobs)


def _verdict(folder: RunFolder) -> tuple[dict[str, Any], Ending]:
    try:
        record: dict[str, Any] = json.loads((folder.path / "verdict.json").read_bytes())
        version = record["schema_version"]
        if version != VERDICT_VERSION:
            raise Skipped("other_version", f"a verdict of version {version}, not {VERDICT_VERSION}")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Skipped("no_verdict", f"verdict.json is missing or torn: {error!r}") from None
    try:
        ending = ending_of(record)
    except (ValueError, KeyError, TypeError) as error:
        raise Skipped("damaged", f"verdict.json: {error!r}") from None
    _check_verdict(record, ending)
    return record, ending


def _check_verdict(record: dict[str, Any], ending: Ending) -> None:
    """A reward is exported only where a verdict beside it gives it."""
    try:
        judged = [Verdict.model_validate(record[key]) for key in ("best", "final") if record.get(key) is not None]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise Skipped("damaged", f"verdict.json: {where}: {first['msg']}") from None
    if ending.reward is not None and (ending.verdict is None or ending.verdict["reward"] != ending.reward):
        raise Skipped("damaged", f"verdict.json: no verdict of the {len(judged)} there gives the reward")


def _diagnose_line(raw: bytes, number: int) -> Skipped | None:
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        return Skipped("damaged", f"line {number}: {error}")
    if number == 1 and isinstance(data, dict) and data.get("version", EVENTS_VERSION) != EVENTS_VERSION:
        return Skipped("other_version", f"events of version {data['version']}, not {EVENTS_VERSION}")
    try:
        EVENT_ADAPTER.validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        reasons: dict[str, SkipReason] = {"union_tag_invalid": "unknown_event", "extra_forbidden": "unknown_field"}
        where = ".".join(map(str, first["loc"]))
        return Skipped(reasons.get(first["type"], "damaged"), f"line {number}: {where}: {first['msg']}")
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

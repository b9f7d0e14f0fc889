"""Acts as a language model by giving the turns of a recorded run or of a hand-written script; actions still run live.

It covers what was said, not what happened: observations are new each time, and the replay does not react to them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.backends.base import Message, Reply, ToolCall, ToolSchema, Usage
from agent.backends.sanitize import dump_object, unique_ids
from agent.backends.script import Script, read_script
from agent.config import BackendConfig, expanded
from agent.errors import ConfigError, RecordError

SCRIPT_NAME: Final = "turns.md"
EVENTS_NAME: Final = "events.jsonl"


class ScriptEnd(Exception):
    """The script has no further turns: a normal end, which the loop records as such."""


class ReplayBackend:
    """Gives the next turn, chosen by counting the assistant messages so far: stateless, so a resumed run fits."""

    cancelled = None

    def __init__(self, path: Path, *, notice: str = "") -> None:
        self.path = find_source(path)
        self.notice = notice
        script = read_script(self.path) if self.path.suffix == ".md" else None
        self.turns = script_replies(script) if script else recorded_replies(self.path)
        self._about = _about(script) if script else {"author": "recorded run"}

    @classmethod
    def from_config(cls, config: BackendConfig) -> "ReplayBackend":
        if not config.script:
            raise ConfigError("backend replay needs a script", hint="--script PATH (a run folder or a turns.md)")
        return cls(expanded(Path(config.script)))

    @property
    def name(self) -> str:
        return f"replay:{'/'.join(self.path.parent.parts[-2:]).lstrip('/')}"

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "replay", "source": str(self.path), "turns": len(self.turns), "is_llm": False, **self._about}

    def chat(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> Reply:
        """The next turn. Raises ScriptEnd after the last one."""
        said = sum(message.role == "assistant" for message in messages)
        if said >= len(self.turns):
            raise ScriptEnd(f"{self.name} has {len(self.turns)} turns and all were given")
        return self.turns[said]

    def close(self) -> None:
        pass


def find_source(path: Path) -> Path:
    """The turns.md or events.jsonl that `path` is or holds. Raises ConfigError."""
    if path.is_file():
        return path.absolute()
    for name in (EVENTS_NAME, SCRIPT_NAME):
        if (path / name).is_file():
            return (path / name).absolute()
    what = f"holds neither {EVENTS_NAME} nor {SCRIPT_NAME}" if path.is_dir() else "does not exist"
    raise ConfigError(f"cannot replay {path}: it {what}")


def script_replies(script: Script) -> tuple[Reply, ...]:
    """One native reply per turn; ids name turn and position, so they are the same in every replay."""
    return tuple(
        Reply(
            text=turn.text,
            calls=tuple(
                ToolCall(id=f"turn{number}_{k}", name=name, arguments=dump_object(values))
                for k, (name, values) in enumerate(turn.actions, 1)
            ),
            finish_reason="tool_calls",
            usage=Usage(cost_usd=0.0),
            raw={"replayed_turn": number, "script_sha256": script.sha256},
        )
        for number, turn in enumerate(script.turns, 1)
    )


def recorded_replies(path: Path) -> tuple[Reply, ...]:
    """The replies of an events.jsonl in order, without the original's usage, times and token ids."""
    from agent.trajectory.events import ReplyEvent
    from agent.trajectory.reader import read_events

    try:
        events = [event for event in read_events(path) if isinstance(event, ReplyEvent)]
    except (RecordError, OSError) as error:
        raise ConfigError(f"cannot replay {path}: {error}") from error
    if not events:
        raise ConfigError(f"cannot replay {path}: it records no reply of a model")
    return tuple(_replayed(event.reply, number) for number, event in enumerate(events, 1))


def _replayed(reply: Reply, number: int) -> Reply:
    raw: dict[str, Any] = {"replayed_turn": number}
    if isinstance(complaint := reply.raw.get("format_error"), str):
        raw["format_error"] = complaint
    ids = unique_ids(call.id for call in reply.calls)
    return Reply(
        text=reply.text,
        calls=tuple(call.model_copy(update={"id": id}) for call, id in zip(reply.calls, ids, strict=True)),
        finish_reason=reply.finish_reason,
        usage=Usage(cost_usd=0.0),
        reasoning=reply.reasoning,
        refusal=reply.refusal,
        model=reply.model,
        raw=raw,
    )


def _about(script: Script) -> dict[str, Any]:
    return {"author": script.author, "target": script.target, "note": script.note, "script_sha256": script.sha256}

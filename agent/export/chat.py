"""An episode's conversation ready to be written: paired, scrubbed, and each reply marked as trained on or not.

The messages are those that the model was sent (`sanitize_history`). Arguments that were no JSON object stand as
`{"invalid_arguments": "<the raw text>"}`, as in the conversation itself. A reply that is not shown as the model wrote
it (broken arguments, a name no server takes, no text at all) is never trained on; one that nothing could be done with
(a format error) only where that is asked for; one that saw a condensed conversation never.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from agent.backends.base import Message, ToolCall, ToolSchema
from agent.backends.sanitize import clean_json, function_name, parse_object, sanitize_history
from agent.export.episodes import Episode, Turn
from agent.export.scrub import Rules, scrub_json, scrub_repeated, scrub_text

INVALID_KEY: Final = "invalid_arguments"


@dataclass(frozen=True)
class Call:
    """One call: the same arguments as an object and as JSON text. `broken`: the model wrote something else."""

    id: str
    name: str
    arguments: dict[str, Any]
    text: str
    broken: bool


@dataclass(frozen=True)
class Line:
    """One message. `turn` and `trained` belong to the model's own; `origin` to what the harness or a person said."""

    role: str
    content: str
    calls: tuple[Call, ...] = ()
    reasoning: str | None = None
    call_id: str | None = None
    name: str | None = None
    turn: Turn | None = None
    trained: bool = False
    origin: str = ""
    t: float | None = None


@dataclass(frozen=True)
class Chat:
    """The whole conversation; `scrubbed` counts what was taken out of it, by kind."""

    lines: tuple[Line, ...]
    tools: tuple[dict[str, Any], ...]
    scrubbed: Counter[str]

    @property
    def prompt(self) -> tuple[Line, ...]:
        """Everything before the first reply."""
        return self.lines[: self._first_reply]

    @property
    def completion(self) -> tuple[Line, ...]:
        """From the first reply to the last one."""
        return self.lines[self._first_reply :]

    @property
    def _first_reply(self) -> int:
        return next((at for at, line in enumerate(self.lines) if line.role == "assistant"), len(self.lines))

    @property
    def trains(self) -> bool:
        return any(line.trained for line in self.lines)


def chat_of(episode: Episode, rules: Rules, *, train_format_errors: bool = False) -> Chat:
    """The conversation up to the last reply: what follows it was seen by nobody."""
    counts: Counter[str] = Counter()
    lines = list(_lines(episode, rules, counts, train_format_errors))
    last = max((at for at, line in enumerate(lines) if line.role == "assistant"), default=-1)
    return Chat(tuple(lines[: last + 1] if last >= 0 else lines), tool_objects(episode.start.tools), counts)


def with_results(episode: Episode, rules: Rules) -> Chat:
    """As chat_of, with the results of the last calls too."""
    counts: Counter[str] = Counter()
    return Chat(tuple(_lines(episode, rules, counts, False)), tool_objects(episode.start.tools), counts)


def without_untrained(chat: Chat) -> Chat:
    """For formats without weights: replies that are not trained on are left out, with their results and complaints.

    Of a reply that has sound calls beside broken ones only the broken ones go.
    """
    kept: list[Line] = []
    dropped_ids: set[str] = set()
    dropping = False
    for line in chat.lines:
        if line.role == "assistant":
            dropped_ids.clear()  # some servers give every reply the same ids
            line = _sound(line, dropped_ids)
            dropping = not line.trained
            if dropping:
                dropped_ids.update(call.id for call in line.calls)
        if line.role == "tool" and line.call_id in dropped_ids:
            continue
        if (dropping and line.role == "assistant") or (dropping and line.origin == "format_error"):
            continue
        kept.append(line)
    last = max((at for at, line in enumerate(kept) if line.role == "assistant"), default=len(kept) - 1)
    return replace(chat, lines=tuple(kept[: last + 1]))


def openai_messages(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """OpenAI's wire format: arguments as JSON text, `weight` on the model's own messages."""
    return [_openai(line) for line in lines]


def hf_messages(lines: Iterable[Line], *, as_text: bool = False) -> list[dict[str, Any]]:
    """What Hugging Face's chat templates take: results with the action's name, arguments as objects.

    `as_text`: arguments as the model's own text, where files cannot hold objects of many shapes.
    """
    return [_hf(line, as_text) for line in lines]


def tool_objects(tools: Sequence[ToolSchema]) -> tuple[dict[str, Any], ...]:
    """Tool schemas in OpenAI's form, which everybody takes."""
    return tuple({"type": "function", "function": clean_json(tool.model_dump())} for tool in tools)


def _lines(episode: Episode, rules: Rules, counts: Counter[str], train_errors: bool) -> Iterator[Line]:
    turns = iter(episode.turns)
    said = iter(episode.said)
    names: dict[str, str] = {}
    for message in sanitize_history(episode.messages):
        if message.role == "assistant":
            turn = next(turns)
            line = _reply(message, turn, rules, counts, train_errors)
            names = {call.id: call.name for call in line.calls}
            yield line
        elif message.role == "tool":
            id = message.tool_call_id or ""
            yield Line("tool", scrub_text(message.content, rules, counts), call_id=id, name=names.get(id, ""))
        else:
            source = next(said, None)
            text = scrub_repeated(message.content, rules, counts)
            yield Line(message.role, text, origin=source.origin if source else "", t=source.t if source else None)


def _reply(message: Message, turn: Turn, rules: Rules, counts: Counter[str], train_errors: bool) -> Line:
    calls = tuple(
        _call(sent, written, rules, counts) for sent, written in zip(message.tool_calls, turn.reply.calls, strict=True)
    )
    silent = not turn.reply.text and not turn.reply.calls
    # Of a condensed conversation the model was shown another beginning than the one that is exported.
    usable = (turn.format_error is None or train_errors) and not turn.condensed_turns
    return Line(
        "assistant",
        scrub_text(message.content, rules, counts),
        calls,
        scrub_text(message.reasoning, rules, counts) if message.reasoning else None,
        turn=turn,
        trained=usable and not silent and not any(call.broken for call in calls),
        t=turn.t,
    )


def _call(sent: ToolCall, written: ToolCall, rules: Rules, counts: Counter[str]) -> Call:
    """`sent` is what the server was shown later, `written` what the model wrote."""
    arguments = parse_object(sent.arguments) or {}
    clean = scrub_json(arguments, rules, counts)
    text = sent.arguments if clean == arguments else json.dumps(clean, ensure_ascii=False)
    broken = function_name(written.name) != written.name or parse_object(written.arguments or "{}") is None
    return Call(sent.id, sent.name, clean, text, broken)


def _sound(line: Line, dropped_ids: set[str]) -> Line:
    """A reply without its broken calls, trained on if a sound call is left; a format error stays what it is."""
    broken = [call for call in line.calls if call.broken]
    sound = tuple(call for call in line.calls if not call.broken)
    if line.trained or not broken or not sound or line.turn is None or line.turn.format_error is not None:
        return line
    dropped_ids.update(call.id for call in broken)
    return replace(line, calls=sound, trained=True)


def _openai(line: Line) -> dict[str, Any]:
    message: dict[str, Any] = {"role": line.role, "content": line.content}
    if line.role == "assistant":
        if line.calls:
            message["content"] = line.content or None
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.text}}
                for call in line.calls
            ]
        message["weight"] = int(line.trained)
    elif line.role == "tool":
        message["tool_call_id"] = line.call_id
    return message


def _hf(line: Line, as_text: bool) -> dict[str, Any]:
    message: dict[str, Any] = {"role": line.role, "content": line.content}
    if line.reasoning:
        message["reasoning_content"] = line.reasoning
    if line.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.text if as_text else call.arguments},
            }
            for call in line.calls
        ]
    if line.role == "tool":
        message["tool_call_id"] = line.call_id
        message["name"] = line.name
    return message

"""Rows for supervised fine-tuning: OpenAI, TRL (conversations and tokens), verl, ShareGPT."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from agent.export.chat import Chat, Line, hf_messages, openai_messages, without_untrained
from agent.export.columns import dump
from agent.export.episodes import Episode
from agent.export.rows import ABOUT, Row, Source, Unit, about
from agent.export.tokens import TokensInconsistent, labels_of, merge

OPENAI: Final = {"messages": "json", "tools": "json", "parallel_tool_calls": "flag"}
TRL: Final = {"messages": "messages", "tools": "json", **ABOUT, "token_level": "flag"}
TOKENS: Final = {"input_ids": "ints", "labels": "ints", **ABOUT, "row": "int", "rows": "int"}
VERL: Final = {"messages": "text_messages", "tools": "tools", "tools_json": "text", **ABOUT}
SHAREGPT: Final = {
    "conversations": "turns",
    "conversations_sharegpt": "sharegpt",
    "agent": "text",
    "model": "text",
    "model_provider": "text",
    "date": "text",
    "task": "text",
    "episode": "text",
    "run_id": "text",
    "trial_name": "text",
    "result": "text",
    "tool_definitions": "json",
    "instruction": "text",
    "verifier_output": "text",
}
_SPEAKERS: Final = {"system": "system", "user": "human", "assistant": "gpt"}


def openai_rows(unit: Unit, source: Source) -> Iterator[Row]:
    """One line of OpenAI's chat fine-tuning file; nothing beside its fields, because unknown ones are refused."""
    chat = source.chat(source.episode(unit.facts[0]))
    if not chat.trains:
        source.withheld["nothing to train on"] += 1
        return
    record: dict[str, Any] = {"messages": openai_messages(chat.lines), "tools": list(chat.tools)}
    if any(len(line.calls) > 1 for line in chat.lines):
        record["parallel_tool_calls"] = True
    yield Row(record)


def trl_rows(unit: Unit, source: Source) -> Iterator[Row]:
    """The conversation, and one row of ids and labels for each token row of the episode."""
    episode = source.episode(unit.facts[0])
    chat = source.chat(episode)
    kept = without_untrained(chat)
    tokens = list(_token_rows(unit, source, episode, chat))
    if not kept.trains:
        source.withheld["nothing to train on"] += 1
        return
    messages = hf_messages(kept.lines)
    yield Row({"messages": messages, "tools": list(chat.tools), **about(unit.facts[0]), "token_level": bool(tokens)})
    yield from tokens


def verl_rows(unit: Unit, source: Source) -> Iterator[Row]:
    """verl templates each message alone and puts the loss on the assistant's."""
    chat = without_untrained(source.chat(source.episode(unit.facts[0])))
    if not chat.trains:
        source.withheld["nothing to train on"] += 1
        return
    tools = list(chat.tools)
    messages = hf_messages(chat.lines, as_text=True)
    yield Row({"messages": messages, "tools": tools, "tools_json": dump(tools), **about(unit.facts[0])})


def sharegpt_rows(unit: Unit, source: Source) -> Iterator[Row]:
    """Calls and results stand in the text, in Hermes' tags: ShareGPT has no place of its own for them."""
    facts = unit.facts[0]
    episode = source.episode(facts)
    chat = without_untrained(source.chat(episode))
    if not chat.trains:
        source.withheld["nothing to train on"] += 1
        return
    texts = _alternating(chat)
    yield Row(
        {
            "conversations": [{"role": role, "content": text} for role, text in texts],
            "conversations_sharegpt": [{"from": _SPEAKERS[role], "value": text} for role, text in texts],
            "agent": "cuda-agent",
            "model": source.clean(episode, facts.model),
            "model_provider": facts.backend,
            "date": datetime.fromtimestamp(episode.start.t, UTC).isoformat(),
            "task": facts.task,
            "episode": "episode-0",
            "run_id": facts.run_id,
            "trial_name": facts.run_id,
            "result": str(facts.reward) if facts.reward is not None else facts.reason,
            "tool_definitions": list(chat.tools),
            "instruction": next((line.content for line in chat.lines if line.role == "user"), ""),
            "verifier_output": source.clean(episode, verdict_text(episode)),
        }
    )


def verdict_text(episode: Episode) -> str:
    """The judge's words in one line, without its measurements in detail."""
    verdict = episode.ending.verdict or {}
    short = {key: verdict.get(key) for key in ("verdict", "reasons", "correct", "reward", "speedup", "median_us")}
    return json.dumps(short, ensure_ascii=False)


def _token_rows(unit: Unit, source: Source, episode: Episode, chat: Chat) -> Iterator[Row]:
    if not unit.facts[0].token_level:
        return
    if chat.scrubbed:
        source.withheld["ids: the text was scrubbed"] += 1
        return
    try:
        rows = merge([turn.tokens for turn in episode.turns if turn.tokens is not None])
    except TokensInconsistent as error:
        source.withheld[f"ids: {error}"] += 1
        return
    trained = [line.trained for line in chat.lines if line.role == "assistant"]
    for number, row in enumerate(rows):
        ids, labels = labels_of(row, trained=trained)
        if any(label != -100 for label in labels):
            where = {"row": number, "rows": len(rows)}
            yield Row({"input_ids": ids, "labels": labels, **about(unit.facts[0]), **where}, set="tokens")


def _alternating(chat: Chat) -> list[tuple[str, str]]:
    """(role, text). All results of a reply are one turn of the user's, as in Hermes: readers drop a row where the same
    speaker comes twice.
    """
    texts: list[tuple[str, str]] = []
    for line in chat.lines:
        role, text = "user" if line.role == "tool" else line.role, _spoken(line)
        if role == "user" and texts and texts[-1][0] == "user":
            text = f"{texts.pop()[1]}\n{text}"
        texts.append((role, text))
    return texts


def _spoken(line: Line) -> str:
    if line.role == "tool":
        return f"<tool_response>\n{line.content}\n</tool_response>"
    parts = [f"<think>\n{line.reasoning}\n</think>"] if line.reasoning else []
    parts += [line.content] if line.content else []
    for call in line.calls:
        said = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
        parts.append(f"<tool_call>\n{said}\n</tool_call>")
    return "\n".join(parts)

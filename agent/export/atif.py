"""Trajectories in ATIF v1.8 (the Agent Trajectory Interchange Format, as Harbor 0.26 defines it).

An agent's step holds its reply, its calls and their results; `arguments` are objects, broken ones in the same
convention as everywhere. The reward stands under `extra`: the root has no field for it.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from agent.export.chat import Line, with_results
from agent.export.episodes import Episode
from agent.export.facts import Facts
from agent.export.rows import Row, Source, Unit

VERSION: Final = "ATIF-v1.8"
NAME_CHARS: Final = 120
_PLACES: Final = frozenset({"base_url", "source"})
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
ATIF: Final = {
    "schema_version": "text",
    "session_id": "text",
    "trajectory_id": "text",
    "agent": "json",
    "steps": "json",
    "final_metrics": "json",
    "extra": "json",
}


def atif_rows(unit: Unit, source: Source) -> Iterator[Row]:
    """One trajectory."""
    facts = unit.facts[0]
    episode = source.episode(facts)
    chat = with_results(episode, source.rules(episode))
    source.scrubbed.update(chat.scrubbed)
    keep_ids = not chat.scrubbed
    if facts.token_level and not keep_ids:
        source.withheld["ids: the text was scrubbed"] += 1
    steps = _steps(chat.lines, keep_ids)
    for step in steps:
        for key in ("model_name", "extra"):
            if key in step:
                step[key] = source.clean(episode, step[key])
    record = {
        "schema_version": VERSION,
        "session_id": facts.run_id,
        "trajectory_id": f"{facts.run_id}-{facts.events_sha256[:8]}",
        "agent": {
            "name": "cuda-agent",
            "version": facts.agent_version,
            "model_name": source.clean(episode, facts.model),
            "tool_definitions": list(chat.tools),
            "extra": source.clean(episode, _made_with(episode)),
        },
        "steps": steps,
        "final_metrics": _totals(episode, facts, len(steps)),
        "extra": {
            "reward": facts.reward,
            "verdict": facts.verdict,
            "stop_reason": facts.reason,
            "task": facts.task,
            "task_sha256": facts.task_sha256,
            "speedup_eager": facts.speedup_eager,
            "speedup_compile": facts.speedup_compile,
            "token_level": facts.token_level and keep_ids,
        },
    }
    yield Row(record, name=_file_name(facts))


def _made_with(episode: Episode) -> dict[str, Any]:
    """Backend and sandbox without the addresses of servers and engines, which name hosts that no rule knows."""
    backend = {key: value for key, value in episode.start.backend.items() if key not in _PLACES}
    return {"backend": backend, "sandbox": {"kind": episode.start.sandbox.get("kind")}}


def _file_name(facts: Facts) -> str:
    """The run's name stands in its log, where it may hold anything: it must not lead out of the folder."""
    return f"{_NO_NAME.sub('_', facts.run_id)[:NAME_CHARS]}-{facts.events_sha256[:8]}"


def _steps(lines: Sequence[Line], keep_ids: bool) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for line in lines:
        if line.role == "tool" and steps and steps[-1]["source"] == "agent":
            results = steps[-1].setdefault("observation", {"results": []})["results"]
            results.append({"source_call_id": line.call_id, "content": line.content})
            continue
        step: dict[str, Any] = {"step_id": len(steps) + 1, "source": _source(line.role), "message": line.content}
        if line.t is not None:
            step["timestamp"] = datetime.fromtimestamp(line.t, UTC).isoformat()
        if line.turn is not None:
            step.update(_agent_fields(line, keep_ids))
        elif line.origin not in ("", "harness"):
            step["extra"] = {"origin": line.origin}
        steps.append(step)
    return steps


def _source(role: str) -> str:
    return {"assistant": "agent", "system": "system"}.get(role, "user")


def _agent_fields(line: Line, keep_ids: bool) -> dict[str, Any]:
    turn = line.turn
    assert turn is not None
    fields: dict[str, Any] = {"llm_call_count": 1, "metrics": _metrics(line, keep_ids)}
    if turn.reply.model:
        fields["model_name"] = turn.reply.model
    if line.reasoning:
        fields["reasoning_content"] = line.reasoning
    if line.calls:
        fields["tool_calls"] = [
            {"tool_call_id": call.id, "function_name": call.name, "arguments": call.arguments} for call in line.calls
        ]
    extra: dict[str, Any] = {"finish_reason": turn.reply.finish_reason}
    if turn.format_error is not None:
        extra["format_error"] = turn.format_error
    return {**fields, "extra": extra}


def _metrics(line: Line, keep_ids: bool) -> dict[str, Any]:
    turn = line.turn
    assert turn is not None
    usage = turn.reply.usage
    metrics: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cached_tokens": usage.cached_tokens,
    }
    if usage.cost_usd is not None:
        metrics["cost_usd"] = usage.cost_usd
    if keep_ids and turn.tokens is not None:
        metrics["prompt_token_ids"] = turn.tokens.prompt.tolist()
        metrics["completion_token_ids"] = turn.tokens.completion.tolist()
        if turn.tokens.logprobs is not None:
            metrics["logprobs"] = turn.tokens.logprobs.tolist()
    return metrics


def _totals(episode: Episode, facts: Facts, steps: int) -> dict[str, Any]:
    """`total_cost_usd` is left out where a price is unknown: never a partial sum."""
    totals: dict[str, Any] = {
        "total_prompt_tokens": facts.prompt_tokens,
        "total_completion_tokens": facts.completion_tokens,
        "total_cached_tokens": sum(turn.reply.usage.cached_tokens for turn in episode.turns),
        "total_steps": steps,
    }
    if facts.cost is not None:
        totals["total_cost_usd"] = facts.cost
    return totals

"""What filters, the funnel and the data card know about one episode: a small record, made from the episode once."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from agent.backends.sanitize import parse_object
from agent.export.episodes import Episode, Turn
from agent.trajectory.events import StopReason

Kind = Literal["number", "text", "flag"]
_CHANGING: Final = frozenset({"write_file", "edit_file"})
_SHELL: Final = frozenset({"bash"})


@dataclass(frozen=True, slots=True)
class Facts:
    """One episode. None means unknown: not judged, not priced, not measured."""

    path: str
    run_id: str
    events_sha256: str
    task: str
    task_sha256: str
    prompt_sha256: str
    """Over everything before the first reply, and the tools: equal for runs that were asked the same."""
    agent_version: str
    judge_version: str
    tools_sha256: str | None
    reward: int | None
    verdict: str | None
    settled: bool
    reason: str
    accepted: bool
    final_accepted: bool
    speedup_eager: float | None
    speedup_compile: float | None
    low_eager: float | None
    high_eager: float | None
    low_compile: float | None
    high_compile: float | None
    target: str | None
    policy: str | None
    precision: str | None
    device: str | None
    model: str
    backend: str
    is_llm: bool
    turns: int
    actions: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None
    wall_s: float | None
    format_errors: int
    invalid_calls: int
    schema_errors: int
    most_repeats: int
    resumed: int
    token_level: bool

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The order of everything that is written: by task, then by run, wherever the run lies."""
        return self.task_sha256, self.task, self.run_id, self.events_sha256

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def rank(self) -> tuple[bool, int, float]:
        """As the loop ranks its two verdicts: accepted, reward, the speed-up over the hardest rival."""
        ratios = [ratio for ratio in (self.speedup_eager, self.speedup_compile) if ratio is not None]
        return self.accepted, self.reward if self.reward is not None else -2, min(ratios, default=0.0)


@dataclass(frozen=True)
class Field:
    """A field that filters may use."""

    kind: Kind
    meaning: str
    words: tuple[str, ...] = ()
    """All values that a text can have, where that is known."""


FIELDS: Final[dict[str, Field]] = {
    "reward": Field("number", "-1, 1, 2 or 3; null where it is unknown"),
    "accepted": Field("flag", "the verdict that counts is accepted"),
    "final_accepted": Field("flag", "the final state of the workspace was accepted"),
    "verdict": Field("text", "of the submission that counts", ("accepted", "rejected", "error")),
    "speedup_eager": Field("number", "median ratio against eager PyTorch"),
    "speedup_compile": Field("number", "median ratio against torch.compile"),
    "low_eager": Field("number", "lower bound of the 95 % interval against eager"),
    "high_eager": Field("number", "upper bound of the 95 % interval against eager"),
    "low_compile": Field("number", "lower bound of the 95 % interval against torch.compile"),
    "high_compile": Field("number", "upper bound of the 95 % interval against torch.compile"),
    "reason": Field("text", "why the loop ended", tuple(reason.value for reason in StopReason)),
    "turns": Field("number", "replies of the model"),
    "actions": Field("number", "calls that got an observation"),
    "tokens": Field("number", "prompt and completion tokens of all calls"),
    "prompt_tokens": Field("number", "prompt tokens of all calls"),
    "completion_tokens": Field("number", "completion tokens of all calls"),
    "cost": Field("number", "US dollars; null where a price is unknown"),
    "wall_s": Field("number", "seconds from start to end"),
    "format_errors": Field("number", "replies without a usable action"),
    "invalid_calls": Field("number", "calls of unknown actions or with arguments that are not valid"),
    "most_repeats": Field("number", "how often the most repeated action was called (see the README of agent/export)"),
    "resumed": Field("number", "how often the run was gone on with"),
    "token_level": Field("flag", "every reply has token ids"),
    "is_llm": Field("flag", "false for replays of hand-written turns"),
    "model": Field("text", "name of the model at the server; the backend's name where it has none"),
    "backend": Field("text", "kind of backend"),
    "task": Field("text", "id of the task"),
    "task_sha256": Field("text", "sha256 of the task's text"),
    "run_id": Field("text", "name of the run"),
    "target": Field("text", "what was judged for", ("cpu", "cuda")),
    "policy": Field("text", "the judge's policy", ("strict", "open")),
    "precision": Field("text", "the judge's precision", ("strict", "tf32", "bf16")),
    "device": Field("text", "name of the device that was timed"),
    "agent_version": Field("text", "version of cuda-agent that ran the episode"),
}


def facts_of(episode: Episode, *, prompt_sha256: str) -> Facts:
    """The record of one episode. What is counted comes from the log, what was judged from verdict.json."""
    verdict = episode.ending.verdict or {}
    final = episode.record.get("final") or {}
    judge = episode.record.get("judge") or {}
    backend = episode.start.backend
    turns, usage = episode.turns, [turn.reply.usage for turn in episode.turns]
    costs = [use.cost_usd for use in usage]
    speedup = verdict.get("speedup") or {}
    return Facts(
        path=str(episode.folder.path),
        run_id=episode.run_id,
        events_sha256=episode.events_sha256,
        task=episode.task.name,
        task_sha256=episode.task.sha256,
        prompt_sha256=prompt_sha256,
        agent_version=episode.start.agent_version,
        judge_version=str(judge.get("agent_version") or episode.start.agent_version),
        tools_sha256=judge.get("tools_sha256"),
        reward=episode.ending.reward,
        verdict=verdict.get("verdict"),
        settled=episode.ending.settled,
        reason=episode.ending.reason.value,
        accepted=verdict.get("verdict") == "accepted",
        final_accepted=final.get("verdict") == "accepted",
        speedup_eager=_number(speedup, "eager", "ratio"),
        speedup_compile=_number(speedup, "compile", "ratio"),
        low_eager=_number(speedup, "eager", "low"),
        high_eager=_number(speedup, "eager", "high"),
        low_compile=_number(speedup, "compile", "low"),
        high_compile=_number(speedup, "compile", "high"),
        target=verdict.get("target"),
        policy=verdict.get("policy"),
        precision=verdict.get("precision"),
        device=(verdict.get("device") or {}).get("name"),
        model=model_name(episode),
        backend=str(backend.get("kind", "")),
        is_llm=bool(backend.get("is_llm", True)),
        turns=len(turns),
        actions=sum(len(turn.observations) for turn in turns),
        prompt_tokens=sum(use.prompt_tokens for use in usage),
        completion_tokens=sum(use.completion_tokens for use in usage),
        cost=None if None in costs else sum(cost for cost in costs if cost is not None),
        wall_s=episode.end.wall_s if episode.end else None,
        format_errors=sum(turn.format_error is not None for turn in turns),
        invalid_calls=_invalid(turns),
        schema_errors=_invalid(turns) + sum(turn.parser_error for turn in turns),
        most_repeats=most_repeats(turns),
        resumed=episode.resumed,
        token_level=bool(turns) and all(turn.tokens is not None for turn in turns),
    )


def model_name(episode: Episode) -> str:
    """What the server called itself, else what was asked for, else the backend's own word."""
    named = next((turn.reply.model for turn in episode.turns if turn.reply.model), "")
    backend = episode.start.backend
    return str(named or backend.get("model") or backend.get("author") or backend.get("kind") or "unknown")


def most_repeats(turns: tuple[Turn, ...]) -> int:
    """How often the same action was called with the same arguments while nothing new had been tried in between.

    A file written with the same content, or the same edit, counts over the whole episode. A command counts afresh
    after a file was changed in a new way; compile, verify, profile and submit also after a new command.
    """
    counts: Counter[tuple[str, str, int]] = Counter()
    written: set[str] = set()
    commands: set[str] = set()
    for name, arguments in _called(turns):
        if name in _CHANGING:
            counts[name, arguments, 0] += 1
            written.add(name + arguments)
        elif name in _SHELL:
            counts[name, arguments, len(written)] += 1
            commands.add(arguments)
        else:
            counts[name, arguments, len(written) + len(commands)] += 1
    return max(counts.values(), default=0)


def _called(turns: tuple[Turn, ...]) -> Iterator[tuple[str, str]]:
    for turn in turns:
        observed = {observation.call_id for observation in turn.observations if observation.status != "not_executed"}
        for call in turn.reply.calls:
            if call.id in observed:
                value = parse_object(call.arguments)
                yield call.name, call.arguments if value is None else json.dumps(value, sort_keys=True)


def _invalid(turns: tuple[Turn, ...]) -> int:
    return sum(observation.status == "invalid" for turn in turns for observation in turn.observations)


def _number(speedup: dict[str, Any], rival: str, key: str) -> float | None:
    value = (speedup.get(rival) or {}).get(key)
    return float(value) if isinstance(value, int | float) else None

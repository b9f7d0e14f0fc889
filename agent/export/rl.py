"""Rows for reinforcement learning: recorded token rows, and prompts for trainers that sample episodes themselves."""

from collections.abc import Iterator
from typing import Any, Final

from agent.export.chat import Chat, hf_messages
from agent.export.episodes import Episode
from agent.export.rows import ABOUT, Row, Source, Unit, about
from agent.export.tokens import TokenRow, TokensInconsistent, merge, rewards_of

STEPS: Final = {
    **ABOUT,
    "token_level": "flag",
    "why_not": "text",
    "row": "int",
    "rows": "int",
    "is_last_row": "flag",
    "prompt_ids": "ints",
    "response_ids": "ints",
    "response_mask": "ints",
    "response_logprobs": "floats",
    "rewards": "floats",
    "messages": "json",
    "tools": "json",
    "num_turns": "int",
    "stop_reason": "text",
    "truncated": "flag",
    "model": "text",
}
GRPO: Final = {
    "prompt": "turns",
    "task_name": "text",
    "task_text": "text",
    "task_sha256": "text",
    "opening": "turns",
    "runs": "int",
    "mean_reward": "float",
    "best_reward": "int",
}
VERL: Final = {
    "data_source": "text",
    "prompt": "turns",
    "ability": "text",
    "reward_model": "reward_model",
    "extra_info": "extra_info",
    "agent_name": "text",
}
DATA_SOURCE: Final = "cuda-agent"
AGENT_NAME: Final = "kernel_agent"
# Stops that cut an episode off, in a trainer's sense: the model had not ended it.
_CUT: Final = frozenset({"turns", "time", "tokens", "cost", "context_overflow"})


def step_rows(unit: Unit, source: Source) -> Iterator[Row]:
    """One record a token row; one with `token_level: false` and the messages where there are no usable ids."""
    facts = unit.facts[0]
    episode = source.episode(facts)
    chat = source.chat(episode)
    common: dict[str, Any] = {
        **about(facts),
        "num_turns": facts.turns,
        "stop_reason": facts.reason,
        "truncated": facts.reason in _CUT,
        "model": source.clean(episode, facts.model),
    }
    rows = _merged(episode, chat)
    if isinstance(rows, str):
        source.withheld[f"ids: {rows}"] += 1
        told = {"messages": hf_messages(chat.lines), "tools": list(chat.tools)}
        yield Row({**common, "token_level": False, "why_not": rows, "row": 0, "rows": 1, "is_last_row": True, **told})
        return
    rewards = rewards_of(rows, float(facts.reward or 0))
    for number, (row, values) in enumerate(zip(rows, rewards, strict=True)):
        yield Row({**common, **_step(row, values, number, len(rows))})


def grpo_rows(unit: Unit, source: Source) -> Iterator[Row]:
    """What agent.environments.for_trl reads: its environment puts the opening behind the empty prompt itself.

    `opening` is the recorded one, for trainers without an environment.
    """
    episode, opening = _opening(unit, source)
    text = source.clean(episode, episode.task.text)
    columns = {"task_name": unit.facts[0].task, "task_text": text, "task_sha256": episode.task.sha256}
    yield Row({"prompt": [{"role": "user", "content": ""}], **columns, "opening": opening, **unit.task})


def verl_rows(unit: Unit, source: Source) -> Iterator[Row]:
    """The columns that verl's RLHFDataset and agent.environments.for_verl read."""
    episode, opening = _opening(unit, source)
    extra = {
        "split": unit.split,
        "index": unit.index,
        "need_tools_kwargs": False,
        "task_name": unit.facts[0].task,
        "task_text": source.clean(episode, episode.task.text),
        "task_sha256": episode.task.sha256,
        **unit.task,
    }
    yield Row(
        {
            "data_source": DATA_SOURCE,
            "prompt": opening,
            "ability": "kernel",
            "reward_model": {"style": "rule", "ground_truth": episode.task.sha256},
            "extra_info": extra,
            "agent_name": AGENT_NAME,
        }
    )


def _opening(unit: Unit, source: Source) -> tuple[Episode, list[dict[str, str]]]:
    episode = source.episode(unit.facts[0])
    return episode, [{"role": line.role, "content": line.content} for line in source.chat(episode).prompt]


def _merged(episode: Episode, chat: Chat) -> list[TokenRow] | str:
    """The episode's token rows, or why there are none."""
    tokens = [turn.tokens for turn in episode.turns]
    known = [found for found in tokens if found is not None]
    if not known:
        return "the server gave no ids"
    if len(known) < len(tokens):
        return "some replies have no ids"
    if chat.scrubbed:
        return "the text was scrubbed"
    try:
        return merge(known)
    except TokensInconsistent as error:
        return str(error)


def _step(row: TokenRow, rewards: list[float], number: int, total: int) -> dict[str, Any]:
    return {
        "token_level": True,
        "row": number,
        "rows": total,
        "is_last_row": number == total - 1,
        "prompt_ids": row.prompt.tolist(),
        "response_ids": row.response.tolist(),
        "response_mask": row.mask,
        "response_logprobs": row.logprobs,
        "rewards": rewards,
    }

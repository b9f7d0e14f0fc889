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
GRPO: Final = {"prompt": "messages", "task": "text", "task_sha256": "text", "task_text": "text", "tools": "json"}
VERL: Final = {
    "data_source": "text",
    "prompt": "turns",
    "ability": "text",
    "reward_model": "reward_model",
    "extra_info": "extra_info",
    "agent_name": "text",
}
DATA_SOURCE: Final = "cuda-agent"
AGENT_NAME: Final = "cuda_agent"
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
    """The prompt of a task, and its text for the environment."""
    episode = source.episode(unit.facts[0])
    chat = source.chat(episode)
    yield Row(
        {
            "prompt": hf_messages(chat.prompt),
            "task": episode.task.name,
            "task_sha256": episode.task.sha256,
            "task_text": source.clean(episode, episode.task.text),
            "tools": list(chat.tools),
        }
    )


def verl_rows(unit: Unit, source: Source) -> Iterator[Row]:
    """The columns that verl's RLHFDataset and its agent loop read. `ground_truth` is the task's text."""
    episode = source.episode(unit.facts[0])
    chat = source.chat(episode)
    prompt = [{"role": line.role, "content": line.content} for line in chat.prompt]
    text = source.clean(episode, episode.task.text)
    extra = {
        "split": unit.split,
        "index": unit.index,
        "need_tools_kwargs": False,
        "task": episode.task.name,
        "task_sha256": episode.task.sha256,
        "task_text": text,
        "runs": unit.task.get("runs"),
        "mean_reward": unit.task.get("mean_reward"),
        "best_reward": unit.task.get("best_reward"),
    }
    yield Row(
        {
            "data_source": DATA_SOURCE,
            "prompt": prompt,
            "ability": "kernel",
            "reward_model": {"style": "rule", "ground_truth": text},
            "extra_info": extra,
            "agent_name": AGENT_NAME,
        }
    )


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

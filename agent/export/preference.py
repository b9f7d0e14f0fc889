"""Rows of preference data: pairs of two episodes of one task, and single episodes with a label."""

from collections.abc import Iterator
from typing import Final

from agent.export.chat import hf_messages
from agent.export.rows import ABOUT, Row, Source, Unit, about

PAIRS: Final = {
    "prompt": "messages",
    "chosen": "messages",
    "rejected": "messages",
    "tools": "json",
    "task": "text",
    "task_sha256": "text",
    "chosen_run": "text",
    "rejected_run": "text",
    "chosen_reward": "int",
    "rejected_reward": "int",
}
KTO: Final = {"prompt": "messages", "completion": "messages", "label": "flag", "tools": "json", **ABOUT}


def pair_rows(unit: Unit, source: Source) -> Iterator[Row]:
    """Both sides have the same prompt: pairs are made among runs that were asked the same."""
    better, worse = unit.facts
    chosen, rejected = (source.chat(source.episode(facts)) for facts in unit.facts)
    yield Row(
        {
            "prompt": hf_messages(chosen.prompt),
            "chosen": hf_messages(chosen.completion),
            "rejected": hf_messages(rejected.completion),
            "tools": list(chosen.tools),
            "task": better.task,
            "task_sha256": better.task_sha256,
            "chosen_run": better.run_id,
            "rejected_run": worse.run_id,
            "chosen_reward": better.reward,
            "rejected_reward": worse.reward,
        }
    )


def kto_rows(unit: Unit, source: Source) -> Iterator[Row]:
    """`label` is what --desirable says about the run."""
    facts = unit.facts[0]
    chat = source.chat(source.episode(facts))
    if not chat.completion:
        source.withheld["no reply"] += 1
        return
    yield Row(
        {
            "prompt": hf_messages(chat.prompt),
            "completion": hf_messages(chat.completion),
            "label": source.desirable(facts),
            "tools": list(chat.tools),
            **about(facts),
        }
    )

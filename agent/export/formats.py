"""The formats of `agent export`: what one row of each is made from, which files and columns it has."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from agent.errors import ConfigError
from agent.export import atif, preference, rl, sft
from agent.export.rows import Row, Source, Unit

Layout = Literal["jsonl", "parquet", "files"]
UnitKind = Literal["run", "pair", "task"]
Rows = Callable[[Unit, Source], Iterator[Row]]


@dataclass(frozen=True)
class Format:
    """`sets` maps each data set of a format (the default one has the name "default") to its columns and their kinds.

    `layouts` begins with the one that is written where nothing else is asked for.
    """

    rows: Rows
    sets: Mapping[str, Mapping[str, str]]
    about: str
    layouts: tuple[Layout, ...] = ("jsonl", "parquet")
    unit: UnitKind = "run"
    needs_reward: bool = False
    options: frozenset[str] = field(default_factory=frozenset)


FORMATS: Final[dict[str, Format]] = {
    "openai": Format(sft.openai_rows, {"default": sft.OPENAI}, "OpenAI chat fine-tuning", layouts=("jsonl",)),
    "trl-sft": Format(
        sft.trl_rows,
        {"default": sft.TRL, "tokens": sft.TOKENS},
        "TRL SFTTrainer: conversations for assistant_only_loss, and tokenised rows where the server gave ids",
    ),
    "trl-preference": Format(
        preference.pair_rows,
        {"default": preference.PAIRS},
        "TRL DPOTrainer and RewardTrainer: two episodes of one task, one better beyond doubt",
        unit="pair",
        needs_reward=True,
    ),
    "trl-kto": Format(
        preference.kto_rows,
        {"default": preference.KTO},
        "TRL KTOTrainer: one episode and whether it is wanted",
        needs_reward=True,
    ),
    "trl-grpo": Format(rl.grpo_rows, {"default": rl.GRPO}, "TRL GRPOTrainer: one prompt a task", unit="task"),
    "rl-steps": Format(
        rl.step_rows, {"default": rl.STEPS}, "token rows with mask, logprobs and one reward", needs_reward=True
    ),
    "verl": Format(
        rl.verl_rows, {"default": rl.VERL}, "verl RLHFDataset: one prompt a task", ("parquet", "jsonl"), unit="task"
    ),
    "verl-sft": Format(
        sft.verl_rows, {"default": sft.VERL}, "verl MultiTurnSFTDataset: conversations", ("parquet", "jsonl")
    ),
    "sharegpt": Format(sft.sharegpt_rows, {"default": sft.SHAREGPT}, "ShareGPT columns as Harbor writes them"),
    "atif": Format(atif.atif_rows, {"default": atif.ATIF}, "ATIF v1.8, one trajectory a file", ("files", "jsonl")),
}


def format_named(name: str) -> Format:
    """Raises ConfigError."""
    if name not in FORMATS:
        raise ConfigError(f"there is no format {name!r}", hint=f"there are {', '.join(FORMATS)}")
    return FORMATS[name]


def layout_of(found: Format, name: str, wanted: str | None) -> Layout:
    """Raises ConfigError where the format's consumers take no such files."""
    if wanted is None:
        return found.layouts[0]
    for layout in found.layouts:
        if layout == wanted:
            return layout
    raise ConfigError(f"{name} is not written as {wanted}", hint=f"--as {' or '.join(found.layouts)}")


def column(columns: Mapping[str, str], record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with every column, in order; None where it has no value."""
    return {name: record.get(name) for name in columns}

"""Options that several commands share, the words that each choice takes, and the settings behind them."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer


class Target(StrEnum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class ImageTarget(StrEnum):
    cpu = "cpu"
    cuda = "cuda"


class Policy(StrEnum):
    strict = "strict"
    open = "open"


class Precision(StrEnum):
    strict = "strict"
    tf32 = "tf32"
    bf16 = "bf16"


class SandboxKind(StrEnum):
    auto = "auto"
    docker = "docker"
    bubblewrap = "bubblewrap"
    none = "none"


class ToolProtocol(StrEnum):
    auto = "auto"
    native = "native"
    text = "text"
    json = "json"


class RewardRule(StrEnum):
    interval = "interval"
    paper = "paper"


class SearchKind(StrEnum):
    best_of = "best-of"
    beam = "beam"


TargetOption = Annotated[Target | None, typer.Option(help="auto: cuda where there is an NVIDIA GPU, else cpu.")]
PolicyOption = Annotated[Policy | None, typer.Option(help="strict: own kernels only; open: whatever computes.")]
PrecisionOption = Annotated[Precision | None, typer.Option(help="Arithmetic allowed to both sides.")]
RewardOption = Annotated[
    RewardRule | None,
    typer.Option(
        "--reward",
        help="What 'more than 5 % faster' looks at: the interval's lower bound, or the point estimate.",
    ),
]
SandboxOption = Annotated[
    SandboxKind | None,
    typer.Option(help="auto: docker where an engine answers, else bubblewrap."),
]
ConsentOption = Annotated[
    bool,
    typer.Option(
        "--i-understand-this-runs-model-code-on-my-machine",
        help="Consent that --sandbox none needs.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=C", help="Any setting, for instance --set limits.repeats=6. Repeatable."),
]
ConfigOption = Annotated[
    list[Path] | None,
    typer.Option("--config", metavar="FILE", help="An agent.toml, or the config.json of a run. Repeatable."),
]
DebugOption = Annotated[bool, typer.Option("--debug", help="Tracebacks for errors.", hidden=True)]


def judging_flags(
    target: Target | None,
    policy: Policy | None,
    precision: Precision | None,
    reward: RewardRule | None,
    sandbox: SandboxKind | None,
    consent: bool,
) -> dict[str, Any]:
    """The settings behind the options that all judging commands share; None where one was not given."""
    return {
        "judge.target": target,
        "judge.policy": policy,
        "judge.precision": precision,
        "judge.reward": reward,
        "sandbox.kind": sandbox,
        "sandbox.i_understand": consent or None,
    }

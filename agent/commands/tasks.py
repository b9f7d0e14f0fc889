"""`agent tasks`: synthesize task sets, examine tasks, import, describe and split sets."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from agent.ui.options import (
    ConfigOption,
    ConsentOption,
    DebugOption,
    SandboxOption,
    SetOption,
    TargetOption,
    judging_flags,
)

tasks_app = typer.Typer(help="Sets of tasks: make, examine, import, describe, split.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.add_typer(tasks_app, name="tasks")


@tasks_app.command("synth")
def synth(
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="TASKS.jsonl", help="The set; the same one goes on.")
    ],
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Tasks in the set.")],
    seed: Annotated[int, typer.Option(metavar="S", help="The same seed gives the same file.")] = 0,
    mix: Annotated[str, typer.Option(metavar="MIX", help="paper, uniform, or torch#2:80,torch#3:20")] = "paper",
    target: TargetOption = None,
    kernelbench: Annotated[
        Path | None, typer.Option(metavar="CHECKOUT", help="Drop what is more than 0.9 similar to a problem there.")
    ] = None,
    twin: Annotated[
        bool, typer.Option("--twin", help="Target cuda without a GPU: filter each task in CPU sizes.")
    ] = False,
    lanes: Annotated[int, typer.Option(min=0, metavar="N", help="Candidates at once; default: one per core.")] = 0,
    sandbox: SandboxOption = None,
    consent: ConsentOption = False,
    settings: SetOption = None,
    config: ConfigOption = None,
    json: Annotated[bool, typer.Option("--json", help="Exactly one JSON object: the funnel.")] = False,
    debug: DebugOption = False,
) -> int:
    """Compose tasks from operators and keep those that every filter passes.

    Exit code: 0 written, 2 usage, 3 infrastructure.
    """
    from agent.ui.task_sets import run_synth

    flags = judging_flags(target, None, None, None, sandbox, consent)
    return run_synth(
        output,
        count=count,
        seed=seed,
        mix=mix,
        kernelbench=kernelbench,
        twin=twin,
        lanes=lanes,
        files=tuple(config or ()),
        settings=tuple(settings or ()),
        flags=flags,
        json=json,
    )

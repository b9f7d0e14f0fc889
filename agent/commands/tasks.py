"""`agent tasks`: synthesize task sets, examine tasks, import, describe and split sets."""

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
    compile: Annotated[bool, typer.Option("--compile/--no-compile", help="Also filter by torch.compile.")] = True,
    times: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Times by tools/time_tasks.py: they decide, and are kept.")
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A language model writes the candidates; names as in agent optimize."),
    ] = None,
    model_name: Annotated[
        str | None, typer.Option("--model", help="Name of the model at the server.", metavar="NAME")
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="Root of an OpenAI-compatible API.", metavar="URL")] = None,
    api_key_env: Annotated[str | None, typer.Option(help="Variable that holds the key.", metavar="VARIABLE")] = None,
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

    asked = {"backend.name": backend, "backend.model": model_name, "backend.base_url": base_url}
    flags = judging_flags(target, None, None, None, sandbox, consent) | asked | {"backend.api_key_env": api_key_env}
    return run_synth(
        output,
        count=count,
        seed=seed,
        mix=mix,
        kernelbench=kernelbench,
        twin=twin,
        lanes=lanes,
        propose=any(asked.values()),
        compile=compile,
        times=times,
        files=tuple(config or ()),
        settings=tuple(settings or ()),
        flags=flags,
        json=json,
    )


@tasks_app.command("check")
def check(
    tasks: Annotated[
        str,
        typer.Argument(metavar="MODEL.py|SET", help="A model.py, a folder, JSONL, parquet, a KernelBench checkout."),
    ],
    task: Annotated[
        list[str] | None, typer.Option("--task", metavar="ID", help="Only these, or a pattern. Repeatable.")
    ] = None,
    target: TargetOption = None,
    rescale: Annotated[
        bool, typer.Option("--rescale/--no-rescale", help="Where only the size is at fault, try others.")
    ] = True,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="DIR", help="Write the tasks that need other sizes, with them.")
    ] = None,
    compile: Annotated[bool, typer.Option("--compile/--no-compile", help="Also under torch.compile.")] = True,
    timeout_s: Annotated[float, typer.Option(min=1, metavar="SECONDS", help="For one task.")] = 120.0,
    lanes: Annotated[int, typer.Option(min=1, metavar="N", help="Tasks at once.")] = 1,
    sandbox: SandboxOption = None,
    consent: ConsentOption = False,
    settings: SetOption = None,
    config: ConfigOption = None,
    json: Annotated[bool, typer.Option("--json", help="Exactly one JSON object: all findings.")] = False,
    debug: DebugOption = False,
) -> int:
    """Say of each task whether an honest judge can score it, and why not.

    Exit code: 0 all can, 1 some are refused, 2 usage, 3 infrastructure.
    """
    from agent.tasks.admission.examiner import Examination
    from agent.ui.task_checks import run_check

    flags = judging_flags(target, None, None, None, sandbox, consent)
    return run_check(
        tasks,
        names=tuple(task or ()),
        how=Examination(lanes=lanes, timeout_s=timeout_s, compile=compile),
        rescale=rescale,
        write=write,
        files=tuple(config or ()),
        settings=tuple(settings or ()),
        flags=flags,
        json=json,
    )


@tasks_app.command("import")
def import_tasks(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A KernelBench checkout, an Ops-6K file, any set.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="TASKS.jsonl", help="The set.")],
    json: Annotated[bool, typer.Option("--json", help="Exactly one JSON object.")] = False,
    debug: DebugOption = False,
) -> int:
    """Write any source of tasks as one file of rows: ops, data_source, code, sha256. Nothing of it is executed."""
    from agent.ui.task_sets import run_import

    return run_import(source, output, json=json)


@tasks_app.command("stats")
def stats(
    source: Annotated[str, typer.Argument(metavar="SET", help="A set; .times.jsonl and .funnel.json beside it count.")],
    plot: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Also a page of plots.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Exactly one JSON object, difficulty of each task.")] = False,
    debug: DebugOption = False,
) -> int:
    """Describe a set: composition, times, difficulty, funnel."""
    from agent.ui.task_sets import run_stats

    return run_stats(source, plot=plot, json=json)


@tasks_app.command("split")
def split(
    source: Annotated[str, typer.Argument(metavar="SET", help="A set of tasks.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder of the parts.")],
    shares: Annotated[str, typer.Option(metavar="SHARES", help="train:0.9,val:0.1")] = "train:0.9,val:0.1",
    json: Annotated[bool, typer.Option("--json", help="Exactly one JSON object.")] = False,
    debug: DebugOption = False,
) -> int:
    """Split a set by the structure of its tasks: near-duplicates stay together."""
    from agent.ui.task_sets import run_split

    return run_split(source, output, shares, json=json)

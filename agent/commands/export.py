"""`agent export`: stored runs become files that trainers load, with a data card."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.errors import EXIT_FASTER, EXIT_NOT_FASTER
from agent.ui.options import DebugOption

if TYPE_CHECKING:
    from agent.export.export import Exported


class FormatName(StrEnum):
    openai = "openai"
    trl_sft = "trl-sft"
    trl_preference = "trl-preference"
    trl_kto = "trl-kto"
    trl_grpo = "trl-grpo"
    rl_steps = "rl-steps"
    verl = "verl"
    verl_sft = "verl-sft"
    sharegpt = "sharegpt"
    atif = "atif"


class LayoutName(StrEnum):
    jsonl = "jsonl"
    parquet = "parquet"
    files = "files"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("export")(export)


def export(
    runs: Annotated[list[Path], typer.Argument(metavar="RUNS...", help="Runs, folders of runs, or collections.")],
    format: Annotated[FormatName, typer.Option("--format", help="What the files are for.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="OUT", help="Folder of the data set.")],
    layout: Annotated[LayoutName | None, typer.Option("--as", help="Files; each format has its own default.")] = None,
    filter: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="EXPR", help="'reward >= 2 and turns < 50'. Repeatable: all must hold."),
    ] = None,
    paper_filters: Annotated[
        list[str] | None,
        typer.Option("--paper-filters", metavar="NAMES", help="all, or of positive, loops, schemas, verified."),
    ] = None,
    best_of_task: Annotated[bool, typer.Option("--best-of-task", help="The best run of each task only.")] = False,
    max_per_task: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The N best runs of a task; of pairs: N pairs.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(metavar="SHARES", help="train:0.98,val:0.02; a task falls into one split.")
    ] = None,
    decontaminate: Annotated[
        Path | None,
        typer.Option(metavar="KERNELBENCH", help="Drop tasks whose class Model is more than 0.9 similar to one there."),
    ] = None,
    train_format_errors: Annotated[
        bool, typer.Option("--train-format-errors", help="Train also on replies that held no usable action.")
    ] = False,
    desirable: Annotated[
        str, typer.Option(metavar="EXPR", help="trl-kto: which runs have the label true.")
    ] = "reward > 0",
    scrub: Annotated[
        list[str] | None, typer.Option("--scrub", metavar="WORD", help="One more word to take out. Repeatable.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export at OUT.")] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Worker processes; default: cores, at most 8.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Exactly one JSON object: what was written.")] = False,
    debug: DebugOption = False,
) -> int:
    """Write stored runs as data for trainers: only finished ones, scrubbed, the same bytes for the same runs.

    Exit code: 0 written, 1 no run is left after the filters (nothing is written), 2 usage, 3 infrastructure.
    """
    from agent.export.export import Request, export_runs

    request = Request(
        runs=tuple(runs),
        format=format.value,
        output=output,
        layout=layout.value if layout else None,
        filters=tuple(filter or ()),
        paper=tuple(paper_filters or ()),
        best_of_task=best_of_task,
        max_per_task=max_per_task,
        split=split,
        decontaminate=decontaminate,
        train_format_errors=train_format_errors,
        desirable=desirable,
        words=tuple(scrub or ()),
        overwrite=overwrite,
        jobs=jobs,
    )
    exported = export_runs(request, progress=_progress)
    _clear_progress()
    sys.stdout.write(_as_json(exported) if json else _as_text(exported))
    return EXIT_FASTER if exported.files else EXIT_NOT_FASTER


def _progress(stage: str, done: int, total: int | None) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{stage} {done}{f' of {total}' if total else ''}")
        sys.stderr.flush()


def _clear_progress() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")


def _as_json(exported: "Exported") -> str:
    import json
    from dataclasses import asdict

    data = {**asdict(exported), "output": str(exported.output), "rows": exported.rows}
    return json.dumps(data) + "\n"


def _as_text(exported: "Exported") -> str:
    lines = [f"{step.left:>8}  {step.name}{f'  (-{step.removed})' if step.removed else ''}" for step in exported.funnel]
    lines += [f"{'':>10}skipped, {reason}: {count}" for reason, count in exported.skipped.items()]
    if not exported.files:
        return "\n".join([*lines, "No run is left, so nothing was written.", ""])
    lines += [f"{file.path}: {file.rows} rows, {file.bytes / 1e6:.1f} MB" for file in exported.files]
    lines.append(f"{exported.rows} rows from {exported.runs} runs of {exported.tasks} tasks in {exported.output}")
    return "\n".join([*lines, ""])

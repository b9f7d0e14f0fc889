"""What the commands of `agent tasks` print: funnels, findings, compositions."""

import json as json_module
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.config import Config, default_files, load_config
from agent.judging.target import resolve_target
from agent.tasks.importing import import_set, write_rows
from agent.tasks.synthesis.mix import parse_mix
from agent.tasks.synthesis.plot import write_plot
from agent.tasks.synthesis.splitting import split_set
from agent.tasks.synthesis.stats import Stats, quantiles, stats_of
from agent.tasks.synthesis.synthesize import Request, Synthesized, funnel, synthesize
from agent.ui.console import make_console, one_line
from agent.ui.quantities import show_duration
from agent.ui.tables import print_columns


def run_synth(
    output: Path,
    *,
    count: int,
    seed: int,
    mix: str,
    kernelbench: Path | None,
    twin: bool,
    lanes: int,
    propose: bool,
    compile: bool,
    times: Path | None,
    files: Sequence[Path],
    settings: Sequence[str],
    flags: Mapping[str, Any],
    json: bool,
) -> int:
    """Writes the set and prints its funnel."""
    config = loaded(files, settings, flags)
    request = Request(
        output=output,
        count=count,
        seed=seed,
        mix=parse_mix(mix),
        mix_name=mix,
        target=resolve_target(config.judge),
        config=config,
        kernelbench=kernelbench,
        twin=twin,
        lanes=lanes,
        propose=propose,
        compile=compile,
        times=times,
    )
    result = synthesize(request, progress=say)
    if json:
        sys.stdout.write(json_module.dumps(funnel(result)) + "\n")
    else:
        _print_funnel(result)
    return 0


def loaded(files: Sequence[Path], settings: Sequence[str], flags: Mapping[str, Any]) -> Config:
    return load_config(files=(*default_files(Path.cwd()), *files), settings=settings, flags=flags)


def say(text: str) -> None:
    """Progress, on standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _print_funnel(result: Synthesized) -> None:
    console = make_console()
    rows = [["candidates", str(result.composed), ""]]
    left = result.composed
    for stage, number in result.dropped.most_common():
        left -= number
        rows.append([f"  {stage}", f"-{number}", f"{number / result.composed:.1%}"])
    rows.append(["tasks", str(len(result.kept)), f"{len(result.kept) / max(1, result.composed):.1%}"])
    print_columns(console, ("filter", "number", "share"), rows, right="lrr")
    kinds = [
        [stream.kind, str(len(stream.kept)), f"{len(stream.kept) / max(1, len(result.kept)):.2%}", str(stream.number)]
        for stream in result.streams
    ]
    console.print()
    print_columns(console, ("kind", "tasks", "share", "candidates"), kinds, right="lrrr")
    for note in result.notes:
        console.print(f"note: {note}", highlight=False, markup=False)
    minutes = max(result.seconds, 1e-9) / 60
    console.print(
        f"{result.examined_now} candidates examined in {show_duration(result.seconds)} "
        f"({result.examined_now / minutes:.0f} a minute); {result.request.output}",
        highlight=False,
        markup=False,
    )


def run_import(source: str, output: Path, *, json: bool) -> int:
    """0 everything was a task, 1 some rows were none."""
    found = import_set(source)
    write_rows(output, found.rows)
    if json:
        refused = [vars(one) for one in found.refused]
        data = {"output": str(output), "rows": len(found.rows), "refused": refused, "notes": list(found.notes)}
        sys.stdout.write(json_module.dumps(data) + "\n")
    else:
        for one in found.refused:
            say(one_line(f"refused {one.where}: {one.code}: {one.detail}"))
        for note in found.notes:
            say(f"note: {note}")
        sys.stdout.write(f"{len(found.rows)} tasks in {output}, {len(found.refused)} refused\n")
    return 1 if found.refused else 0


def run_stats(source: str, *, plot: Path | None, json: bool) -> int:
    """0."""
    found = stats_of(source)
    if plot is not None:
        write_plot(found, plot)
    if json:
        sys.stdout.write(json_module.dumps(found.as_dict()) + "\n")
    else:
        _print_stats(found)
    return 0


def run_split(source: str, output: Path, shares: str, *, json: bool) -> int:
    """0."""
    parts = split_set(source, output, shares)
    if json:
        rows = [{"name": part.name, "path": str(part.path), "rows": part.rows, "share": part.share} for part in parts]
        sys.stdout.write(json_module.dumps({"parts": rows}) + "\n")
    else:
        shown = [[part.name, str(part.rows), f"{part.share:.1%}", str(part.path)] for part in parts]
        print_columns(make_console(), ("part", "tasks", "share", "file"), shown, right="lrrl")
    return 0


def _print_stats(found: Stats) -> None:
    console = make_console()
    total = len(found.tasks)
    kinds = [[kind, str(count), f"{count / total:.2%}"] for kind, count in found.kinds.items()]
    print_columns(console, ("kind", "tasks", "share"), kinds, right="lrr")
    console.print()
    measured = {
        "eager, ms": quantiles([task.eager_ms for task in found.tasks]),
        "eager / torch.compile": quantiles([task.ratio for task in found.tasks]),
        "eager / roofline": quantiles([task.headroom for task in found.tasks]),
        "operators": quantiles([float(task.operators) for task in found.tasks]),
    }
    rows = [[name, *(f"{value:.3g}" for value in numbers.values())] for name, numbers in measured.items() if numbers]
    print_columns(console, ("", "least", "25 %", "median", "75 %", "most"), rows, right="lrrrrr")
    console.print(f"times: {found.times_from}", highlight=False, markup=False)
    if found.funnel:
        dropped = [[stage, str(number)] for stage, number in found.funnel.get("dropped", {}).items()]
        composed, kept = found.funnel.get("composed"), found.funnel.get("kept")
        console.print()
        print_columns(
            console, ("filter", "number"), [["candidates", str(composed)], *dropped, ["kept", str(kept)]], right="lr"
        )

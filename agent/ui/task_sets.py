"""What the commands of `agent tasks` print: funnels, findings, compositions."""

import json as json_module
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.config import Config, default_files, load_config
from agent.judging.target import resolve_target
from agent.tasks.synthesis.mix import parse_mix
from agent.tasks.synthesis.synthesize import Request, Synthesized, funnel, synthesize
from agent.ui.console import make_console
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

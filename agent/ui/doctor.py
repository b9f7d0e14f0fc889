"""`agent doctor`: what `agent optimize` needs on this machine, what is missing, and what to do about it."""

import json as json_format
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent.config import Config, default_files, load_config
from agent.errors import EXIT_INFRASTRUCTURE
from agent.judging.target import resolve_target
from agent.judging.tool_runs import Target
from agent.ui.checks import (
    Check,
    check_model,
    check_python,
    check_sandbox_choice,
    check_storage,
    check_target,
)
from agent.ui.console import make_console, safe
from agent.ui.sandbox_checks import check_bubblewrap, check_docker, check_inside

if TYPE_CHECKING:
    from rich.console import Console

WORTH_SAYING_S: Final = 0.1
_MARKS: Final = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red"), "skip": ("–", "dim")}


@dataclass(frozen=True)
class Thoroughness:
    """`quick`: without what takes more than a few seconds. `patience_s`: for one sandbox' layers, 0 for the usual."""

    quick: bool = False
    patience_s: float = 0.0


def run_doctor(
    *,
    files: Sequence[Path],
    settings: Sequence[str],
    flags: Mapping[str, Any],
    json: bool,
    how: Thoroughness = Thoroughness(),
) -> int:
    """0 when `agent optimize` could run (its sandbox works, a language model answers or a recorded run is replayed)."""
    config = load_config(files=(*default_files(Path.cwd()), *files), settings=settings, flags=flags)
    console = make_console(stderr=json)
    began = time.monotonic()
    checks: list[Check] = []
    for check in all_checks(config, console, how):
        checks.append(check)
        if not json:
            _print(console, check, first=len(checks) == 1 or checks[-2].group != check.group)
    able, seconds = could_run(checks), round(time.monotonic() - began, 1)
    if json:
        data = {"schema_version": 1, "ok": able, "seconds": seconds, "checks": [check.as_dict() for check in checks]}
        sys.stdout.write(json_format.dumps(data) + "\n")
    else:
        _conclude(console, able, seconds)
    return 0 if able else EXIT_INFRASTRUCTURE


def could_run(checks: Iterable[Check]) -> bool:
    """Only checks that `agent optimize` depends on count; the others inform."""
    return not any(check.status == "fail" and check.needed for check in checks)


def all_checks(config: Config, console: "Console", how: Thoroughness) -> Iterator[Check]:
    """In the order in which things depend on each other; what takes long runs side by side."""
    target = resolve_target(config.judge)
    with ThreadPoolExecutor(max_workers=6) as pool:
        model = pool.submit(lambda: list(check_model(config)))
        engines = {
            "docker": pool.submit(lambda: list(check_docker(config, target))),
            "bubblewrap": pool.submit(lambda: list(check_bubblewrap(config))),
        }
        yield check_python()
        yield check_target(config)
        yield from check_storage(config)
        usable = {}
        for name, engine in engines.items():
            usable[name] = _works(engine.result())
            yield from engine.result()
        chosen, kind = check_sandbox_choice(config)
        usable["none"] = kind == "none"
        yield chosen
        kinds = [name for name, works in usable.items() if works and config.sandbox.kind in ("auto", name)]
        inside = [pool.submit(_inside, config, name, target, name == kind, how) for name in kinds]
        yield from model.result()
        for name, layers in zip(kinds, inside, strict=True):
            with console.status(f"testing a {name} sandbox"):
                found = layers.result()
            yield from found


def _inside(config: Config, name: str, target: Target, needed: bool, how: Thoroughness) -> list[Check]:
    return list(check_inside(config, name, target, needed=needed, quick=how.quick, patience_s=how.patience_s))


def _works(checks: Sequence[Check]) -> bool:
    return all(check.status in ("ok", "warn") for check in checks)


def _print(console: "Console", check: Check, *, first: bool) -> None:
    from rich.text import Text

    if first:
        console.print(Text(check.group, style="bold"))
    mark, style = _MARKS[check.status]
    took = f"  {check.seconds:.1f} s" if check.seconds >= WORTH_SAYING_S else ""
    line = Text.assemble((f"  {mark} ", style), f"{check.name:<16} ", (safe(check.detail) + took, "dim"))
    console.print(line, soft_wrap=not console.is_terminal)
    if check.advice and check.status != "ok":
        head, *more = safe(check.advice).splitlines()
        for text in (f"    → {head}", *(f"      {line}" for line in more)):
            console.print(Text(text, style=style), soft_wrap=not console.is_terminal)


def _conclude(console: "Console", able: bool, seconds: float) -> None:
    from rich.text import Text

    words = "`agent optimize` can run here" if able else "`agent optimize` cannot run here yet; see the marks above"
    console.print()
    console.print(Text(f"{words} ({seconds:.0f} s)", style="bold green" if able else "bold red"))

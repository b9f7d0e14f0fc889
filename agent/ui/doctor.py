"""`agent doctor`: what `agent optimize` needs on this machine, what is missing, and what to do about it."""

import json as json_format
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent.config import Config, default_files, load_config
from agent.errors import EXIT_INFRASTRUCTURE
from agent.judging.target import resolve_target
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

_MARKS: Final = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red"), "skip": ("–", "dim")}


def run_doctor(*, files: Sequence[Path], settings: Sequence[str], flags: Mapping[str, Any], json: bool) -> int:
    """0 when `agent optimize` could run (its sandbox works, a language model answers or a recorded run is replayed)."""
    config = load_config(files=(*default_files(Path.cwd()), *files), settings=settings, flags=flags)
    console = make_console(stderr=json)
    checks = []
    for check in all_checks(config, console):
        checks.append(check)
        if not json:
            _print(console, check, first=len(checks) == 1 or checks[-2].group != check.group)
    able = could_run(checks)
    if json:
        data = {"schema_version": 1, "ok": able, "checks": [check.as_dict() for check in checks]}
        sys.stdout.write(json_format.dumps(data) + "\n")
    else:
        _conclude(console, able)
    return 0 if able else EXIT_INFRASTRUCTURE


def could_run(checks: Iterable[Check]) -> bool:
    """Only checks that `agent optimize` depends on count; the others inform."""
    return not any(check.status == "fail" and check.needed for check in checks)


def all_checks(config: Config, console: "Console") -> Iterator[Check]:
    """In the order in which things depend on each other; slow ones come last."""
    target = resolve_target(config.judge)
    yield check_python()
    yield check_target(config)
    yield from check_storage(config)
    docker, bubblewrap = list(check_docker(config, target)), list(check_bubblewrap(config))
    yield from docker
    yield from bubblewrap
    chosen, kind = check_sandbox_choice(config)
    yield chosen
    yield from check_model(config)
    usable = {"docker": _works(docker), "bubblewrap": _works(bubblewrap), "none": kind == "none"}
    for name in ("docker", "bubblewrap", "none"):
        if usable[name] and config.sandbox.kind in ("auto", name):
            with console.status(f"testing a {name} sandbox (a minute or two)"):
                inside = list(check_inside(config, name, target, needed=name == kind))
            yield from inside


def _works(checks: Sequence[Check]) -> bool:
    return all(check.status in ("ok", "warn") for check in checks)


def _print(console: "Console", check: Check, *, first: bool) -> None:
    from rich.text import Text

    if first:
        console.print(Text(check.group, style="bold"))
    mark, style = _MARKS[check.status]
    line = Text.assemble((f"  {mark} ", style), f"{check.name:<16} ", (safe(check.detail), "dim"))
    console.print(line, soft_wrap=not console.is_terminal)
    if check.advice and check.status != "ok":
        head, *more = safe(check.advice).splitlines()
        for text in (f"    → {head}", *(f"      {line}" for line in more)):
            console.print(Text(text, style=style), soft_wrap=not console.is_terminal)


def _conclude(console: "Console", able: bool) -> None:
    from rich.text import Text

    words = "`agent optimize` can run here" if able else "`agent optimize` cannot run here yet; see the marks above"
    console.print()
    console.print(Text(words, style="bold green" if able else "bold red"))

"""What `agent tasks check` prints: one line per task, with the reason and what would help."""

import json as json_module
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.config import default_files, load_config
from agent.errors import EXIT_INFRASTRUCTURE, RecordError
from agent.judging.target import resolve_target
from agent.tasks.admission.check import Finding, check_tasks
from agent.tasks.admission.examiner import Examination
from agent.tasks.sets import load_tasks
from agent.ui.console import make_console, one_line

EXIT_REFUSED: Final = 1
_STYLES: Final = {"admitted": "green", "rescaled": "yellow", "refused": "red", "error": "bold red"}


def run_check(
    source: str,
    *,
    names: Sequence[str],
    how: Examination,
    rescale: bool,
    write: Path | None,
    files: Sequence[Path],
    settings: Sequence[str],
    flags: Mapping[str, Any],
    json: bool,
) -> int:
    """0 every task can be judged, 1 some cannot, 3 some could not be examined."""
    config = load_config(files=(*default_files(Path.cwd()), *files), settings=settings, flags=flags)
    found = load_tasks(source, names=names)
    console = make_console()

    def told(finding: Finding) -> None:
        if json:
            return
        console.print(f"{finding.status:9}", style=_STYLES[finding.status], end="")
        console.print(one_line(f" {finding.task.name}"), highlight=False, markup=False)
        for line in _lines(finding):
            console.print(f"          {one_line(line)}", highlight=False, markup=False)

    target = resolve_target(config.judge)
    findings = check_tasks(found.tasks, config, target=target, how=how, rescale=rescale, told=told)
    if write is not None:
        _write(findings, write)
    counts: Counter[str] = Counter(finding.status for finding in findings)
    unread = [{"where": one.where, "code": one.code, "detail": one.detail} for one in found.refused]
    if json:
        data = {
            "schema_version": 1,
            "target": target,
            "counts": dict(counts) | {"no task": len(unread)},
            "tasks": [finding.as_dict() for finding in findings],
            "no_task": unread,
        }
        sys.stdout.write(json_module.dumps(data) + "\n")
    else:
        for one in unread:
            console.print(
                f"no task   {one_line(one['where'])}: {one_line(one['detail'])}", highlight=False, markup=False
            )
        summary = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
        console.print(f"{summary}{f', {len(unread)} no task' if unread else ''} (target {target})", highlight=False)
    if counts["error"]:
        return EXIT_INFRASTRUCTURE
    return EXIT_REFUSED if counts["refused"] or unread else 0


def _lines(finding: Finding) -> list[str]:
    lines = [f"{reason.code}: {reason.detail}" for reason in finding.report.reasons]
    if finding.rescaled and finding.rescaled_report:
        eager = finding.rescaled_report.facts.get("eager_ms", 0.0)
        lines.append(f"admitted with {finding.rescaled.told()} (eager {eager:.3g} ms)")
    shown = finding.rescaled_report or finding.report
    lines += [f"remark: {flag.code}: {flag.detail}" for flag in shown.flags]
    return [*lines, *(f"remark: {remark}" for remark in finding.remarks)]


def _write(findings: Sequence[Finding], folder: Path) -> None:
    """The rescaled texts as NAME.py below `folder`."""
    for finding in findings:
        if finding.rescaled is None:
            continue
        path = folder / f"{finding.task.name}.py"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(finding.rescaled.text, encoding="utf-8")
        except OSError as error:
            raise RecordError(f"cannot write {path}: {error.strerror}") from error

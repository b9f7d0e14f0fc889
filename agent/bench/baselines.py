"""`agent bench SUITE --reference`: times of the references alone, in eager mode and compiled, no submission judged.

Covers: problems prepared side by side, one timed at a time (tools/baselines.py), in a sandbox where no submission is.
Resumable: every row is on disk as soon as it is known, and what was measured in the same way is not measured again.
Not covered: the judge's fresh inputs for every call; ratios of a verdict come from its own rounds.
"""

import contextlib
import hashlib
import json
import math
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.assets import asset
from agent.bench.outcomes import level_of
from agent.bench.report import replace_file, table
from agent.config import Config
from agent.errors import SandboxError
from agent.judging.sandboxes import sandbox_limits
from agent.judging.target import resolve_target
from agent.sandbox.base import TOOLS, WORKSPACE, Mount, SandboxSpec
from agent.sandbox.labels import ROLE
from agent.sandbox.open import open_sandbox
from agent.sandbox.variables import WithVariables
from agent.tasks.task import Task
from agent.ui.console import safe

ROWS: Final = "baselines.jsonl"
TABLES: Final = "baselines.md"
SUMMARY: Final = "baselines.json"
FOLDER: Final = "rows"
SLACK_S: Final = 900.0
"""Beyond the budget: what was begun is brought to its end."""
NO_BUDGET_S: Final = 24 * 3600.0
ALSO_NEXT_TIME: Final = ("runtime.", "task.hangs", "task.out_of_memory")
"""Failures that say as much about the machine as about the problem."""


class Baseline(BaseModel):
    """One line of baselines.jsonl; times are medians in ms, quartiles beside them."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    task_id: str
    sha256: str
    target: Literal["cpu", "cuda"]
    precision: str
    status: Literal["measured", "failed"]
    tools: str
    code: str = ""
    detail: str = ""
    device: str = ""
    torch: str = ""
    eager_ms: float | None = None
    eager_quartiles_ms: tuple[float, float] | None = None
    compile_ms: float | None = None
    compile_quartiles_ms: tuple[float, float] | None = None
    ratio: float | None = None
    ratio_quartiles: tuple[float, float] | None = None
    rounds: int = 0
    equal: bool | None = None
    compile_s: float = 0.0
    prepare_s: float = 0.0
    peak_bytes: int = 0
    compile_error: str = ""
    alone: bool = False

    @property
    def stands(self) -> bool:
        """Whether another try would only repeat it."""
        return self.status == "measured" or not self.code.startswith(ALSO_NEXT_TIME)


def measure(
    config: Config,
    suite: str,
    tasks: Sequence[Task],
    folder: Path,
    *,
    lanes: int,
    budget_s: float,
    variables: Mapping[str, str],
    quiet: bool,
) -> list[Baseline]:
    """What is known at the end, in the suite's order; tables are written. Raises SandboxError."""
    target = resolve_target(config.judge)
    rows = folder / FOLDER
    path = rows / ROWS
    if not path.exists():
        rows.mkdir(exist_ok=True)
        rows.chmod(0o777)  # a container's user writes there
        path.touch()
        path.chmod(0o666)
    version = measuring_sha256()
    known = _known(path, config, version)
    wanted = [task for task in tasks if not (row := known.get(task.sha256)) or not row.stands]
    if wanted:
        limit_s = budget_s + SLACK_S if budget_s else NO_BUDGET_S
        flags = ["--target", target, "--precision", config.judge.precision, "--out", f"{WORKSPACE}/{ROWS}"]
        flags += [f"--lanes={lanes}", f"--budget-s={budget_s:g}", f"--version={version}"]
        problems = [{"task_id": task.name, "sha256": task.sha256, "code": task.text} for task in wanted]
        stdin = "".join(json.dumps(problem) + "\n" for problem in problems).encode("ascii")
        with _sandbox(config, rows) as sandbox, _told(path, quiet=quiet):
            argv = [sandbox.python, "-I", f"{TOOLS}/baselines.py", *flags]
            log = folder / "baselines.log"
            done = WithVariables(sandbox, variables).exec(argv, timeout_s=limit_s, stdin=stdin, log=log)
        if done.status == "exited" and done.exit_code != 0:
            tail = " ".join(done.stderr.text().split())[-300:]
            raise SandboxError(f"baselines.py ended with exit code {done.exit_code}: {tail}", hint=f"see {log}")
        known = _known(path, config, version)
    found = [known[task.sha256] for task in tasks if task.sha256 in known]
    _write(folder, suite, tasks, found)
    return found


@contextlib.contextmanager
def _sandbox(config: Config, workspace: Path) -> Iterator[Any]:
    spec = SandboxSpec(
        workspace=workspace,
        mounts=(Mount(asset("tools"), TOOLS),),
        limits=sandbox_limits(config.sandbox),
        labels={ROLE: "judge"},
        gpus="all" if resolve_target(config.judge) == "cuda" else "none",
    )
    sandbox = open_sandbox(config.sandbox, spec, target=resolve_target(config.judge))
    try:
        yield sandbox
    finally:
        sandbox.close()


def measuring_sha256() -> str:
    """Which way of measuring this is: the programs that do it. The rest of tools/ does not make a time another one."""
    digest = hashlib.sha256()
    for path in sorted((asset("tools") / "baselining").glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _known(path: Path, config: Config, version: str) -> dict[str, Baseline]:
    """By the text's sha256; of a problem the last row of this version and precision counts. A torn line is none."""
    target, precision = resolve_target(config.judge), config.judge.precision
    found: dict[str, Baseline] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = Baseline.model_validate(json.loads(line))
        except (ValueError, ValidationError):
            continue
        if (row.target, row.precision) == (target, precision) and row.tools == version:
            found[row.sha256] = row
    return found


@contextlib.contextmanager
def _told(path: Path, *, quiet: bool) -> Iterator[None]:
    """A line on standard error for every row, as it comes."""
    over = threading.Event()

    def follow() -> None:
        with path.open(encoding="utf-8", errors="replace") as file:
            file.seek(0, os.SEEK_END)
            while True:
                last = over.wait(0.5)
                for line in file:
                    with contextlib.suppress(ValueError, ValidationError):
                        sys.stderr.write(safe(_line(Baseline.model_validate(json.loads(line)))) + "\n")
                if last:
                    return

    thread = threading.Thread(target=follow, daemon=True)
    if not quiet:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if not quiet:
            thread.join()


def _line(row: Baseline) -> str:
    if row.status == "failed":
        return f"{row.task_id}: {row.code}: {row.detail[:160]}"
    compiled = f"compiled {row.compile_ms:.4g} ms" if row.compile_ms is not None else f"({row.compile_error[:100]})"
    return f"{row.task_id}: eager {row.eager_ms:.4g} ms, {compiled}, compiling took {row.compile_s:.0f} s"


def summary(suite: str, tasks: Sequence[Task], rows: Sequence[Baseline]) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "suite": suite,
        "date": time.strftime("%Y-%m-%d"),
        "device": next((row.device for row in rows if row.device), ""),
        "torch": next((row.torch for row in rows if row.torch), ""),
        "tools": measuring_sha256(),
        "levels": [_level(level, tasks, rows) for level in _levels(tasks)],
        "rows": [row.model_dump(mode="json") for row in rows],
    }


def _levels(tasks: Sequence[Task]) -> list[str]:
    return sorted({level_of(task.name) for task in tasks})


def _level(level: str, tasks: Sequence[Task], rows: Sequence[Baseline]) -> dict[str, Any]:
    mine = [row for row in rows if level_of(row.task_id) == level]
    ratios = [row.ratio for row in mine if row.ratio]
    eager = [row.eager_ms for row in mine if row.eager_ms is not None]
    return {
        "level": level,
        "tasks": sum(level_of(task.name) == level for task in tasks),
        "measured": sum(row.status == "measured" for row in mine),
        "failed": sum(row.status == "failed" for row in mine),
        "not_compiled": sum(row.status == "measured" and row.compile_ms is None for row in mine),
        "eager_ms_median": statistics.median(eager) if eager else None,
        "eager_over_compile_geomean": math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None,
        "compile_is_faster": sum(ratio > 1 for ratio in ratios),
    }


def markdown(suite: str, tasks: Sequence[Task], rows: Sequence[Baseline]) -> str:
    data = summary(suite, tasks, rows)
    facts = ", ".join(str(data[name]) for name in ("date", "device", "torch") if data[name])
    head = (
        "level",
        "tasks",
        "measured",
        "failed",
        "not compiled",
        "median eager ms",
        "eager / compiled",
        "faster compiled",
    )
    levels = [
        (
            one["level"],
            *(str(one[name]) for name in ("tasks", "measured", "failed", "not_compiled")),
            _short(one["eager_ms_median"]),
            _short(one["eager_over_compile_geomean"]),
            str(one["compile_is_faster"]),
        )
        for one in data["levels"]
    ]
    names = ("task", "eager ms", "quartiles", "compiled ms", "quartiles", "eager / compiled", "quartiles", "remark")
    every = table(names, [_cells(row) for row in rows])
    return f"# {suite}\n\nReferences alone: {facts}\n\n{table(head, levels)}\n{every}"


def _cells(row: Baseline) -> tuple[str, ...]:
    times = (row.eager_ms, row.eager_quartiles_ms, row.compile_ms, row.compile_quartiles_ms)
    shown = (*times, row.ratio, row.ratio_quartiles)
    return (row.task_id, *(_span(one) if isinstance(one, tuple) else _short(one) for one in shown), _remark(row))


def _remark(row: Baseline) -> str:
    if row.status == "failed":
        return f"{row.code}: {row.detail[:100]}"
    if row.compile_error:
        return row.compile_error[:100]
    return "compiled output differs" if row.equal is False else ""


def _span(values: tuple[float, float]) -> str:
    return f"{values[0]:.4g}-{values[1]:.4g}"


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _write(folder: Path, suite: str, tasks: Sequence[Task], rows: Sequence[Baseline]) -> None:
    replace_file(folder / SUMMARY, json.dumps(summary(suite, tasks, rows), indent=1) + "\n")
    replace_file(folder / TABLES, markdown(suite, tasks, rows))

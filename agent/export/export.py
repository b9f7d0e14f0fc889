"""Exports stored runs: scan, select, write rows in workers, write the data card, put the data set in its place."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from agent.errors import ConfigError
from agent.export.card import Card, contamination_report, provenance_record
from agent.export.columns import dump, pyarrow
from agent.export.emit import Emitted, emit, work_of
from agent.export.facts import Facts
from agent.export.files import CARD, DataFile, DataFiles, check_output, staged, write_text
from agent.export.filters import Filter, parse_filter
from agent.export.formats import Format, Layout, format_named, layout_of
from agent.export.paper import paper_filters
from agent.export.pool import ordered_map
from agent.export.provenance import origins
from agent.export.rows import RowSettings, Unit
from agent.export.scan import Scan, scan_runs
from agent.export.scrub import PLACEHOLDERS, Host, recorded_paths, rules_for, scrub_text
from agent.export.selection import Selection, Step, Wanted, make_units, select
from agent.export.similarity import Structure, load_benchmark
from agent.export.splits import Split, parse_splits, split_of

Progress = Callable[[str, int, int | None], None]
MOST_JOBS: Final = 8
FEW_RUNS: Final = 64
SHORTEST_WORD: Final = 3
PROVENANCE: Final = "provenance.jsonl"


@dataclass(frozen=True)
class Request:
    """What `agent export` was asked for."""

    runs: tuple[Path, ...]
    format: str
    output: Path
    layout: str | None = None
    filters: tuple[str, ...] = ()
    paper: tuple[str, ...] = ()
    best_of_task: bool = False
    max_per_task: int | None = None
    split: str | None = None
    decontaminate: Path | None = None
    train_format_errors: bool = False
    desirable: str = "reward > 0"
    words: tuple[str, ...] = ()
    overwrite: bool = False
    jobs: int | None = None


@dataclass(frozen=True)
class Exported:
    """What was written; no files where nothing was left, and then nothing stands at the output."""

    output: Path
    funnel: tuple[Step, ...]
    skipped: dict[str, int]
    files: tuple[DataFile, ...]
    runs: int
    tasks: int

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


@dataclass(frozen=True)
class _Plan:
    """The request, checked: whatever can be wrong with it is said before the first run is read."""

    request: Request
    format: Format
    layout: Layout
    target: Path
    filters: tuple[Filter, ...]
    paper: tuple[Filter, ...]
    splits: tuple[Split, ...]
    benchmark: tuple[Structure, ...]
    settings: RowSettings
    jobs: int


@dataclass
class _Written:
    files: list[DataFile] = field(default_factory=list)
    units: set[int] = field(default_factory=set)
    scrubbed: Counter[str] = field(default_factory=Counter)
    withheld: Counter[str] = field(default_factory=Counter)


def export_runs(request: Request, *, progress: Progress = lambda stage, done, total: None) -> Exported:
    """Raises ConfigError for what was asked wrongly, RecordError where it cannot be written."""
    plan = _check(request)
    scan = _scan(plan, progress)
    selection = _select(plan, scan)
    pairs = request.max_per_task if plan.format.unit == "pair" else None
    units = make_units(selection, plan.format.unit, plan.splits, max_pairs=pairs)
    try:
        with staged(plan.target) as folder:
            written = _write(plan, folder, units, progress)
            if not written.files:
                raise _NothingLeft
            facts = _facts_of(plan, [unit for unit in units if unit.index in written.units], selection)
            _write_card(plan, folder, facts, selection, scan, written)
    except _NothingLeft:
        written, facts = _Written(), []
    return Exported(
        output=plan.target,
        funnel=tuple(_funnel(scan, selection)),
        skipped=dict(sorted(scan.skipped.items())),
        files=tuple(written.files),
        runs=len(facts),
        tasks=len({one.task_sha256 for one in facts}),
    )


class _NothingLeft(Exception):
    """No row came out of it, so that nothing is put in place."""


def _check(request: Request) -> _Plan:
    found = format_named(request.format)
    layout = layout_of(found, request.format, request.layout)
    if layout == "parquet":
        pyarrow()
    if request.best_of_task and request.max_per_task is not None:
        raise ConfigError("--best-of-task and --max-per-task exclude each other")
    if found.unit == "pair" and request.best_of_task:
        raise ConfigError("a pair needs two runs of a task, so --best-of-task leaves none")
    for word in request.words:
        if len(word) < SHORTEST_WORD or any(word in placeholder for placeholder in PLACEHOLDERS):
            raise ConfigError(f"--scrub {word!r} is too short, or part of a placeholder")
    settings = RowSettings(
        host=Host.here(),
        words=request.words,
        train_format_errors=request.train_format_errors,
        desirable=request.desirable,
    )
    parse_filter(request.desirable)
    return _Plan(
        request=request,
        format=found,
        layout=layout,
        target=check_output(request.output, overwrite=request.overwrite),
        filters=tuple(parse_filter(text) for text in request.filters),
        paper=paper_filters(request.paper),
        splits=parse_splits(request.split),
        benchmark=load_benchmark(request.decontaminate) if request.decontaminate else (),
        settings=settings,
        jobs=request.jobs or min(os.cpu_count() or 1, MOST_JOBS),
    )


def _scan(plan: _Plan, progress: Progress) -> Scan:
    scan = Scan()
    for scan in scan_runs(plan.request.runs, jobs=plan.jobs):
        progress("reading", scan.found, None)
    if not scan.found:
        raise ConfigError("there are no runs in what was given", hint="give a run, a folder of runs, or a collection")
    return scan


def _select(plan: _Plan, scan: Scan) -> Selection:
    wanted = Wanted(
        needs_reward=plan.format.needs_reward,
        filters=plan.filters,
        paper=plan.paper,
        benchmark=plan.benchmark,
        best_of_task=plan.request.best_of_task,
        max_per_task=None if plan.format.unit == "pair" else plan.request.max_per_task,
    )
    selection = select(scan.facts, wanted)
    if plan.settings.words:  # tasks and runs have their names from people
        selection.facts = [_named_cleanly(one, plan.settings) for one in selection.facts]
    return selection


def _write(plan: _Plan, folder: Path, units: Sequence[Unit], progress: Progress) -> _Written:
    written = _Written()
    files = DataFiles(folder, plan.format.sets, plan.layout)
    jobs = plan.jobs if len(units) > FEW_RUNS else 1
    work = work_of(units, format=plan.request.format, layout=plan.layout, settings=plan.settings)
    done = 0
    try:
        for batch, emitted in zip(work, ordered_map(emit, work, jobs=jobs), strict=True):
            _take(written, files, emitted)
            done += len(batch.units)
            progress("writing", done, len(units))
        written.files = files.close()
    except BaseException:
        files.abandon()
        raise
    return written


def _take(written: _Written, files: DataFiles, emitted: Emitted) -> None:
    for split, row in emitted.rows:
        files.write(split, row)
    written.units.update(emitted.written)
    written.scrubbed.update(emitted.scrubbed)
    written.withheld.update(emitted.withheld)


def _facts_of(plan: _Plan, units: Sequence[Unit], selection: Selection) -> list[Facts]:
    """The runs that the rows were made from, each once, in order."""
    if plan.format.unit == "task":
        tasks = {unit.facts[0].task_sha256 for unit in units}
        return [one for one in selection.facts if one.task_sha256 in tasks]
    found = {one.key: one for unit in units for one in unit.facts}
    return [found[key] for key in sorted(found)]


def _write_card(
    plan: _Plan, folder: Path, facts: Sequence[Facts], selection: Selection, scan: Scan, written: _Written
) -> None:
    found = origins(facts)
    models = {one.model: _clean_name(one.model, plan.settings) for one in facts}
    lines = [
        dump(
            provenance_record(
                one,
                source=found[one.task_sha256].source,
                model=models[one.model],
                split=split_of(one.task_sha256, plan.splits),
            )
        )
        for one in facts
    ]
    provenance = "".join(line + "\n" for line in lines)
    write_text(folder / PROVENANCE, provenance)
    card = Card(
        format=plan.request.format,
        about=plan.format.about,
        layout=plan.layout,
        options=_options(plan.request),
        funnel=_funnel(scan, selection),
        skipped=scan.skipped,
        skipped_examples={
            reason: [_clean_name(line, plan.settings) for line in lines] for reason, lines in scan.examples.items()
        },
        facts=facts,
        files=written.files,
        scrubbed=written.scrubbed,
        withheld=written.withheld,
        licences=Counter(origin.licence for origin in found.values()),
        sources=Counter(origin.source for origin in found.values()),
        models=Counter(models[one.model] for one in facts),
        contamination=contamination_report(selection.neighbours, len(plan.benchmark)) if plan.benchmark else None,
        provenance_sha256=hashlib.sha256(provenance.encode("utf-8")).hexdigest(),
    )
    write_text(folder / CARD, json.dumps(card.data(), indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    write_text(folder / "README.md", card.markdown(plan.format))


def _funnel(scan: Scan, selection: Selection) -> list[Step]:
    unreadable = sum(scan.skipped.values())
    readable = scan.found - unreadable
    return [
        Step("runs found", 0, scan.found),
        Step("finished and readable", unreadable, readable),
        Step("each run once", scan.duplicates, readable - scan.duplicates),
        *selection.steps,
    ]


def _options(request: Request) -> dict[str, Any]:
    """What decided the content, without paths of this host and without the words to scrub."""
    return {
        "filters": list(request.filters),
        "paper_filters": list(request.paper),
        "best_of_task": request.best_of_task,
        "max_per_task": request.max_per_task,
        "split": request.split,
        "decontaminate": request.decontaminate is not None,
        "train_format_errors": request.train_format_errors,
        "desirable": request.desirable,
        "scrub_words": len(request.words),
    }


def _named_cleanly(one: Facts, settings: RowSettings) -> Facts:
    return replace(one, task=_clean_name(one.task, settings), run_id=_clean_name(one.run_id, settings))


def _clean_name(text: str, settings: RowSettings) -> str:
    """A model's name (a path, for local servers) or a line about a run, scrubbed."""
    rules = rules_for(settings.host, run="", recorded=recorded_paths(text), words=settings.words)
    return scrub_text(text, rules, Counter())

"""Writes the pages of one run, or of many runs and their overview, with links that stay inside the folder.

A thousand runs take seconds: they are read and rendered side by side in processes, each page once, and of the code on
such a page only so much is highlighted as a person reads first; `agent view RUN` highlights all of it.
"""

import contextlib
import hashlib
import json
import multiprocessing
import os
import secrets
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from agent.config import expanded
from agent.errors import ConfigError
from agent.trajectory.folder import RunFolder
from agent.trajectory.stored import find_runs
from agent.trajectory.writer import FULL_ERRNOS, record_error
from agent.ui.console import one_line
from agent.view.collection_page import Refused, collection_page
from agent.view.figures import need_plots
from agent.view.reading import read_run
from agent.view.rows import Row, mark_superseded, row_of
from agent.view.run_page import run_page

PAGE: Final = "view.html"
BUDGET_CHARS: Final = (4_000, 40_000, 4_000_000)
"""How much code of a collection's run page is highlighted: at least, at most, and of all pages together. pygments does
about 500 kB a second, so that a thousand runs get seconds of it."""
INLINE_RUNS: Final = 12
"""Below this, starting processes costs more than it saves."""
CHUNK: Final = 8


@dataclass(frozen=True)
class Written:
    """What was made. `page` is the one to open."""

    page: Path
    runs: int
    run_pages: int


@dataclass(frozen=True)
class _Order:
    """One run to be read, and its page, if one is wanted; pickled to another process."""

    run: Path
    page: Path | None
    overview: Path
    budget: int


def write_view(
    paths: Sequence[Path],
    *,
    output: Path | None = None,
    run_pages: bool = True,
    workers: int | None = None,
) -> Written:
    """Write the page of a run, or the pages of all runs below `paths`.

    `output` is a file that ends in .html, or a folder; by default view.html lies beside what it shows, and each run's
    page in the run's folder. Raises ConfigError (nothing there, plotly missing, cannot be written) and RecordError
    (the disk is full).
    """
    roots = [expanded(path).absolute() for path in paths]
    folders = list(find_runs(roots))
    if not folders:
        raise ConfigError(
            f"there is no run in {', '.join(map(str, paths))}", hint="a run has config.json and task.json"
        )
    if len(roots) == 1 and folders[0].path == roots[0]:
        return _write_run(folders[0], _page(output, roots[0]))
    if len(roots) > 1 and output is None:
        raise ConfigError("several folders need a place for the overview", hint="give it with -o")
    need_plots()
    page = _page(output, roots[0])
    budget = _budget(len(folders))
    orders = [
        _Order(folder.path, _run_page(folder, page, beside=output is not None) if run_pages else None, page, budget)
        for folder in folders
    ]
    rows = mark_superseded(_made(orders, workers=workers))
    title = ", ".join(root.name for root in roots)
    text = collection_page(rows, title=title, refused=_refused(roots), owed=_owed(roots, rows))
    _write(page, text)
    return Written(page, len(rows), len(rows) if run_pages else 0)


def _write_run(folder: RunFolder, page: Path) -> Written:
    run = read_run(folder)
    _write(page, run_page(run, row_of(run)))
    return Written(page, 1, 1)


def _page(output: Path | None, root: Path) -> Path:
    if output is None:
        return root / PAGE
    chosen = expanded(output).absolute()
    return chosen if chosen.suffix.lower() in (".html", ".htm") and not chosen.is_dir() else chosen / PAGE


def _run_page(folder: RunFolder, page: Path, *, beside: bool) -> Path:
    """With -o the run pages lie in a folder beside the overview, so that both can be moved; else in the runs."""
    return page.parent / f"{page.stem}-runs" / _name(folder) if beside else folder.path / PAGE


def _budget(runs: int) -> int:
    least, most, total = BUDGET_CHARS
    return max(least, min(most, total // runs))


def _name(folder: RunFolder) -> str:
    """A name of its own: runs of the same name may lie in different folders."""
    return f"{folder.run_id}-{hashlib.sha256(os.fsencode(folder.path)).hexdigest()[:8]}.html"


def _link(target: Path, start: Path) -> str:
    return quote(os.path.relpath(target, start).replace(os.sep, "/"), errors="surrogateescape")


def _made(orders: Sequence[_Order], *, workers: int | None) -> Iterator[Row]:
    count = workers or len(os.sched_getaffinity(0))
    if count == 1 or len(orders) <= INLINE_RUNS:
        yield from map(_make, orders)
        return
    # Not fork: the process that calls this may have threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context, initializer=_leave_interrupts) as pool:
        yield from pool.map(_make, orders, chunksize=CHUNK)


def _leave_interrupts() -> None:
    """^C goes to every process of the terminal; the one that was called answers it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _make(order: _Order) -> Row:
    """Read one run, write its page, and give its row, whose link is relative to the overview."""
    run = read_run(RunFolder(order.run))
    row = row_of(run)
    if order.page is None:
        return row
    back = _link(order.overview, order.page.parent)
    _write(order.page, run_page(run, row, back=back, budget=order.budget))
    return replace(row, page=_link(order.page, order.overview.parent))


def _write(page: Path, text: str) -> None:
    temporary = page.with_name(f".{page.name}.{secrets.token_hex(4)}")
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8", newline="\n")
        temporary.replace(page)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if error.errno in FULL_ERRNOS:
            raise record_error(page, error) from error
        reason = error.strerror or str(error)
        raise ConfigError(f"cannot write {page}: {reason}", hint="choose another place with -o") from error


def _refused(roots: Sequence[Path]) -> list[Refused]:
    """Lines of refused.jsonl; what is no such line is left out."""
    found = []
    for root in roots:
        for record in _lines(root / "refused.jsonl"):
            what = record.get("id") or f"line {record.get('line', '?')}"
            code, detail = str(record.get("code") or ""), str(record.get("detail") or "")
            found.append(Refused(one_line(str(what)), one_line(code), one_line(detail, 400)))
    return found


def _owed(roots: Sequence[Path], rows: Sequence[Row]) -> str:
    """How much of a collection is not done yet."""
    if len(roots) != 1:
        return ""
    try:
        plan = json.loads((roots[0] / "collection.json").read_bytes())
        places = {str(roots[0] / task["folder"]) for task in plan["tasks"]}
        samples = int(plan["samples"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return ""
    done = sum(row.counts and str(Path(row.path).parents[1]) in places for row in rows)
    wanted = len(places) * samples
    left = f", {wanted - done} to go" if wanted > done else ""
    return f"{len(places)} tasks × {samples} samples: {done} of {wanted} have a result{left}"


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            for raw in file:
                try:
                    data = json.loads(raw)
                except (ValueError, RecursionError):
                    continue
                if isinstance(data, dict):
                    yield data
    except OSError:
        return

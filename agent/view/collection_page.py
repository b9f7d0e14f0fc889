"""The page of a collection: shares and cost, four plots, and a table of all runs that sorts and filters."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from agent import __version__
from agent.trajectory.events import StopReason
from agent.ui.quantities import show_cost, show_count, show_duration
from agent.ui.summaries import STOP_WORDS
from agent.view.figures import Rival, Share, best_of_task, fast_share, figures, plotly_script
from agent.view.pages import csp_hash, data_block, render_page, source
from agent.view.rows import Row
from agent.view.run_page import tone

REFUSED_AT_MOST: Final = 200


@dataclass(frozen=True)
class Tile:
    """One number with what it means."""

    name: str
    value: str
    small: str = ""


@dataclass(frozen=True)
class Refused:
    """A task of the collection that was not run, and why."""

    what: str
    code: str
    detail: str


def collection_page(rows: Sequence[Row], *, title: str, refused: Sequence[Refused] = (), owed: str = "") -> str:
    """The HTML. `owed` says what a collection has not run yet. Raises ConfigError where plotly is not installed."""
    library, script = Markup(plotly_script()), source("collection.js")
    return render_page(
        "collection.html.j2",
        title=title,
        tiles=tiles(rows),
        rows=[(row, tone(row), _why(row)) for row in rows],
        superseded=sum(row.state == "superseded" for row in rows),
        models=sorted({row.model for row in rows if row.model}),
        reasons=sorted({row.reason for row in rows if row.reason}),
        refused=refused[:REFUSED_AT_MOST],
        refused_more=max(0, len(refused) - REFUSED_AT_MOST),
        owed=owed,
        figures=data_block(figures(rows)),
        library=library,
        script=script,
        script_hashes=Markup(f"{csp_hash(library)} {csp_hash(script)}"),
        version=__version__,
        made_at=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    )


def tiles(rows: Sequence[Row]) -> list[Tile]:
    """The collection in a line."""
    current = [row for row in rows if row.state != "superseded"]
    counted = [row for row in rows if row.counts]
    scored = [row for row in counted if row.scored]
    accepted = Share(sum((row.reward or 0) > 0 for row in scored), len(scored))
    tasks = {(row.task, row.task_sha256) for row in current}
    return [
        Tile("runs", f"{len(current):,}", f"{len(counted):,} with a result, {len(tasks):,} tasks"),
        Tile("accepted", *_share(accepted, "scored runs")),
        Tile("fast₁ vs eager", *_fast(counted, "eager")),
        Tile("fast₁ vs torch.compile", *_fast(counted, "compile")),
        _cost(current),
        Tile("tokens", show_count(sum(row.tokens for row in current)), _median([row.tokens for row in current])),
        _time(current),
    ]


def _share(share: Share, of: str) -> tuple[str, str]:
    if not share.total:
        return "–", f"no {of}"
    low, high = share.interval
    return f"{share.hits / share.total:.0%}", f"{share.hits} of {share.total} {of}; 95 %: {low:.0%}–{high:.0%}"


def _fast(rows: Sequence[Row], rival: Rival) -> tuple[str, str]:
    """By the median ratio, as the metric has it; and how many of these the measured interval bears out."""
    value, small = _share(fast_share(rows, rival), "tasks, best sample, by median")
    sure = sum(speedup is not None and speedup.low > 1 for speedup in best_of_task(rows, rival))
    return value, f"{small}; whole interval above 1×: {sure}" if rows else small


def _cost(rows: Sequence[Row]) -> Tile:
    costs = [row.cost_usd for row in rows if row.cost_usd is not None]
    if not costs:
        return Tile("cost", "no price")
    unknown = len(rows) - len(costs)
    fast = sum((row.reward or 0) >= 2 for row in rows)
    each = f"{show_cost(sum(costs) / fast)} per run with reward ≥ 2" if fast and any(costs) and not unknown else ""
    return Tile("cost", show_cost(sum(costs)), f"{unknown} runs without a price" if unknown else each)


def _median(values: Sequence[float]) -> str:
    return f"median {show_count(round(statistics.median(values)))} a run" if values else ""


def _time(rows: Sequence[Row]) -> Tile:
    walls = [row.wall_s for row in rows]
    small = f"median {show_duration(statistics.median(walls))} a run" if walls else ""
    return Tile("time at work", show_duration(sum(walls)), small)


def _why(row: Row) -> str:
    """What a person wants to know about a run that has no reward, or a bad one."""
    if row.judged and row.judged.reasons:
        first = row.judged.reasons[0]
        return f"{first.code}: {first.detail}"
    if row.notes:
        return row.notes[0]
    return STOP_WORDS[StopReason(row.reason)] if row.reason and row.reward is None else ""

"""The plots of a collection as plotly figures, and the numbers they show.

fast_p is KernelBench's metric (Ouyang et al. 2025, https://arxiv.org/abs/2502.10517): the share of all tasks whose
kernel is correct and more than p times as fast as the baseline. Here it is drawn for the best sample of each task, and
with the interval of the measured speed-ups: the band goes from the share whose lower bound is above p to the share
whose upper bound is. A task without any result counts as not correct.
"""

import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from agent.errors import ConfigError, install
from agent.judging.reports import Speedup
from agent.view.rows import Row

POINTS_AT_MOST: Final = 1_200
CURVE_STEPS: Final = 160
Rival = Literal["eager", "compile"]
RIVALS: Final[tuple[Rival, ...]] = ("eager", "compile")
NAMES: Final = {"eager": "eager", "compile": "torch.compile"}
REWARDS: Final = ((-1, "−1"), (1, "1"), (2, "2"), (3, "3"))
ALL_TICKS_BELOW: Final = 13


@dataclass(frozen=True)
class Share:
    """`hits` of `total` with the 95 % Wilson interval of the share."""

    hits: int
    total: int

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson (1927), the score interval of a proportion; (0, 1) where nothing was counted."""
        if not self.total:
            return 0.0, 1.0
        z, n, p = 1.959964, self.total, self.hits / self.total
        centre, spread = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, (centre - spread) / (1 + z * z / n)), min(1.0, (centre + spread) / (1 + z * z / n))


def figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Plain data by element id, ready for Plotly.newPlot. Raises ConfigError where plotly is not installed."""
    counted = [row for row in rows if row.counts]
    return {
        "plot-reward": _plain(_rewards(rows)),
        "plot-turns": _plain(_by_turn(counted)),
        "plot-fast": _plain(_fast_p(counted)),
        "plot-cost": _plain(_cost(counted)),
    }


def plotly_script() -> str:
    """plotly.js as the Python package ships it."""
    _graph_objects()
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    return str(get_plotlyjs())


def best_of_task(rows: Iterable[Row], rival: Rival) -> list[Speedup | None]:
    """For each task the accepted sample that is fastest against `rival`; None where none was accepted."""
    best: dict[tuple[str, str], Speedup | None] = {}
    for row in rows:
        key = (row.task, row.task_sha256)
        speedup = getattr(row.judged, rival) if row.judged and row.judged.accepted else None
        held = best.setdefault(key, None)
        if speedup and (held is None or speedup.ratio > held.ratio):
            best[key] = speedup
    return list(best.values())


def fast_p(speedups: Sequence[Speedup | None], p: float, value: Callable[[Speedup], float]) -> float:
    """Share of all tasks, in 0 to 1, whose speed-up is above `p`."""
    return sum(s is not None and value(s) > p for s in speedups) / len(speedups) if speedups else 0.0


def fast_share(rows: Sequence[Row], rival: Rival, p: float = 1.0) -> Share:
    """fast_p for the best sample of each task, as a count."""
    speedups = best_of_task(rows, rival)
    return Share(sum(s is not None and s.ratio > p for s in speedups), len(speedups))


def need_plots() -> None:
    """Before anything is written. Raises ConfigError where plotly is missing."""
    _graph_objects()


def _graph_objects() -> Any:
    try:
        import plotly.graph_objects as go  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigError("the plots need plotly", hint=install("view")) from None
    return go


def _rewards(rows: Sequence[Row]) -> Any:
    go = _graph_objects()
    counted = [row for row in rows if row.state != "superseded"]
    names = [name for _, name in REWARDS] + ["none"]
    counts = [sum(row.reward == reward for row in counted) for reward, _ in REWARDS]
    counts.append(sum(row.reward is None for row in counted))
    share = [f"{count} of {len(counted)}" for count in counts]
    bar = go.Bar(x=names, y=counts, customdata=share, hovertemplate="%{x}: %{customdata}<extra></extra>", text=counts)
    figure = _figure(go, [bar], x="reward", y="runs")
    figure.update_xaxes(type="category")
    return _whole(figure.update_yaxes, max(counts), figure)


def _by_turn(rows: Sequence[Row]) -> Any:
    """Points: every comparison the model had made. Line: median over runs of the best one so far."""
    go = _graph_objects()
    points = [(timed, row) for row in rows for timed in row.timed]
    traces = []
    for name, symbol, chosen in (
        ("decided", "circle", [p for p in points if p[0].speedup.call != "inconclusive"]),
        ("inconclusive", "circle-open", [p for p in points if p[0].speedup.call == "inconclusive"]),
    ):
        stride = max(1, math.ceil(len(chosen) / POINTS_AT_MOST))
        thinned = chosen[::stride]
        traces.append(
            go.Scatter(
                x=[timed.turn for timed, _ in thinned],
                y=[timed.speedup.ratio for timed, _ in thinned],
                customdata=[_words(timed.speedup, row.task, timed.rival) for timed, row in thinned],
                hovertemplate="turn %{x}: %{customdata}<extra></extra>",
                mode="markers",
                marker={"symbol": symbol, "size": 6, "opacity": 0.6},
                name=name if stride == 1 else f"{name} (1 in {stride} shown)",
            )
        )
    turns, medians = median_best(rows)
    traces.append(go.Scatter(x=turns, y=medians, mode="lines", line={"shape": "hv", "width": 2}, name="median of best"))
    figure = _figure(go, traces, x="turn", y="speed-up over the harder rival", log_y=True)
    figure.add_hline(y=1, line={"dash": "dot", "width": 1})
    return _whole(figure.update_xaxes, max(turns, default=0), figure)


def median_best(rows: Sequence[Row]) -> tuple[list[int], list[float]]:
    """Over the runs that had measured something by then: the median of the best speed-up so far, turn by turn."""
    turns = sorted({timed.turn for row in rows for timed in row.timed})
    best: dict[int, float] = {}
    medians = []
    by_turn: dict[int, list[tuple[int, float]]] = {turn: [] for turn in turns}
    for index, row in enumerate(rows):
        for timed in row.timed:
            by_turn[timed.turn].append((index, timed.speedup.ratio))
    for turn in turns:
        for index, ratio in by_turn[turn]:
            best[index] = max(best.get(index, 0.0), ratio)
        medians.append(statistics.median(best.values()))
    return turns, medians


def _fast_p(rows: Sequence[Row]) -> Any:
    go = _graph_objects()
    traces = []
    for rival in RIVALS:
        speedups = best_of_task(rows, rival)
        top = max((s.high for s in speedups if s), default=2.0)
        highest = min(max(3.0, top), 4 * max((s.ratio for s in speedups if s), default=1.0))
        ps = [round(0.25 * (max(highest, 2.0) / 0.25) ** (step / CURVE_STEPS), 4) for step in range(CURVE_STEPS + 1)]
        low, mid, high = ([fast_p(speedups, p, value) for p in ps] for value in _BOUNDS)
        words = [f"{m:.0%} ({a:.0%}–{b:.0%}) of {len(speedups)}" for a, m, b in zip(low, mid, high, strict=True)]
        band = {"mode": "lines", "line": {"width": 0, "shape": "hv"}, "hoverinfo": "skip", "showlegend": False}
        traces.append(go.Scatter(x=ps, y=high, legendgroup=rival, **band))
        traces.append(go.Scatter(x=ps, y=low, fill="tonexty", legendgroup=rival, **band))
        hover = f"p = %{{x:.2f}}, {NAMES[rival]}: %{{customdata}}<extra></extra>"
        line = {"shape": "hv", "width": 2}
        traces.append(
            go.Scatter(
                x=ps, y=mid, customdata=words, hovertemplate=hover, line=line, name=NAMES[rival], legendgroup=rival
            )
        )
    return _figure(go, traces, x="p", y="share of tasks faster than p", log_x=True, share_y=True)


_BOUNDS: Final[tuple[Callable[[Speedup], float], ...]] = (lambda s: s.low, lambda s: s.ratio, lambda s: s.high)


def _cost(rows: Sequence[Row]) -> Any:
    """Dollars of each run, or tokens where not every run has a price."""
    go = _graph_objects()
    costs = [row.cost_usd for row in rows if row.cost_usd is not None]
    priced = len(costs) == len(rows) and any(costs)
    values: list[float] = costs if priced else [row.tokens for row in rows]
    bars = go.Histogram(x=values, nbinsx=30, hovertemplate="%{x}: %{y} runs<extra></extra>")
    return _figure(go, [bars], x="US dollars a run" if priced else "tokens a run", y="runs")


def _words(speedup: Speedup, task: str, rival: str) -> str:
    ratio = f"{speedup.ratio:.2f}× ({speedup.low:.2f}–{speedup.high:.2f}), {speedup.call}"
    return f"{ratio}, vs {rival}<br>{_text(task)}"


def _text(words: str) -> str:
    """plotly reads a few tags and entities in labels; a task's name holds none."""
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _figure(
    go: Any, traces: Sequence[Any], *, x: str, y: str, log_x: bool = False, log_y: bool = False, share_y: bool = False
) -> Any:
    layout = {
        "template": "none",
        "margin": {"l": 52, "r": 8, "t": 8, "b": 38},
        "font": {"size": 11},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "bargap": 0.25,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "showlegend": len(traces) > 1,
        "hoverlabel": {"align": "left"},
        "xaxis": {"title": {"text": x, "standoff": 6}, "type": "log" if log_x else None, "automargin": False},
        "yaxis": {"title": {"text": y, "standoff": 4}, "type": "log" if log_y else None, "rangemode": "tozero"},
    }
    figure = go.Figure(data=list(traces), layout=layout)
    if share_y:
        figure.update_yaxes(range=[0, 1.02], tickformat=".0%")
    for axis, on in ((figure.update_xaxes, log_x), (figure.update_yaxes, log_y)):
        if on:
            ticks = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
            axis(tickvals=ticks, ticktext=[f"{tick:g}×" for tick in ticks], tickangle=0)
    return figure


def _whole(update: Callable[..., Any], largest: int, figure: Any) -> Any:
    """Few whole numbers get a tick each: there is no half a run."""
    if largest < ALL_TICKS_BELOW:
        update(dtick=1)
    return figure


def _plain(figure: Any) -> Any:
    return json.loads(figure.to_json())

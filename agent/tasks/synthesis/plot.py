"""A set as one page of plots: kinds, operators, times, torch.compile's gain, what the filters dropped."""

from pathlib import Path
from typing import Final

from agent.errors import ConfigError, RecordError, install
from agent.tasks.synthesis.stats import Stats

TOP: Final = 30


def write_plot(stats: Stats, path: Path) -> None:
    """A self-contained HTML file (plotly.js inside). Raises ConfigError without plotly, RecordError."""
    try:
        from plotly import graph_objects as go  # type: ignore[import-untyped]
        from plotly.subplots import make_subplots  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigError("plots need plotly", hint=install("view")) from None
    titles = ("tasks by kind", "operators", "eager, ms", "eager / torch.compile by operators", "dropped by", "headroom")
    figure = make_subplots(rows=3, cols=2, subplot_titles=titles, vertical_spacing=0.09)
    operators = list(stats.operators.items())[:TOP]
    figure.add_trace(go.Bar(x=list(stats.kinds), y=list(stats.kinds.values())), row=1, col=1)
    names = [name.rpartition(".")[2] for name, _ in operators]
    figure.add_trace(go.Bar(x=names, y=[count for _, count in operators]), row=1, col=2)
    eager = [task.eager_ms for task in stats.tasks if task.eager_ms]
    figure.add_trace(go.Histogram(x=eager, nbinsx=40), row=2, col=1)
    timed = [task for task in stats.tasks if task.ratio]
    figure.add_trace(
        go.Scatter(
            x=[task.operators for task in timed],
            y=[task.ratio for task in timed],
            text=[task.task_id for task in timed],
            mode="markers",
        ),
        row=2,
        col=2,
    )
    dropped = dict((stats.funnel or {}).get("dropped", {}))
    figure.add_trace(go.Bar(x=list(dropped), y=list(dropped.values())), row=3, col=1)
    headroom = [task.headroom for task in stats.tasks if task.headroom]
    figure.add_trace(go.Histogram(x=headroom, nbinsx=40), row=3, col=2)
    figure.update_yaxes(type="log", row=2, col=2)
    title = f"{Path(stats.source).name}: {len(stats.tasks)} tasks, times: {stats.times_from}"
    figure.update_layout(height=1100, showlegend=False, title=title)
    try:
        figure.write_html(path, include_plotlyjs=True, full_html=True)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror}") from error

"""A run's speed-ups by turn as a static SVG: ratios with their intervals on a logarithmic axis, no script needed.

Why not plotly here: its script is 4.8 MB a page, a thousand run pages would weigh gigabytes, and a page without any
script can forbid scripts altogether.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent.judging.reports import Speedup
from agent.view.turns import Turn
from agent.view.verdicts import Judged

WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 44, 96, 14, 26
TICKS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0)
SPAN: Final = (0.45, 2.2)
"""The axis covers at least this, and at most a factor of 4 beyond the ratios: wide intervals leave the frame."""


@dataclass(frozen=True)
class Mark:
    """One comparison, in pixels."""

    x: float
    y: float
    low: float
    high: float
    kind: str
    call: str
    title: str


@dataclass(frozen=True)
class Chart:
    """What the template draws; `one` is the height of the line at 1×."""

    marks: tuple[Mark, ...]
    ticks: tuple[tuple[float, str], ...]
    turns: tuple[tuple[float, str], ...]
    one: float
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def speedup_chart(turns: Sequence[Turn], judged: Judged | None) -> Chart | None:
    """None where nothing was timed."""
    shown = [(turn.number, turn.timing, f"turn {turn.number}") for turn in turns if turn.timing]
    last = max((turn.number for turn in turns), default=0)
    if judged and judged.weakest:
        shown.append((last + 1, judged, "judge"))
    if not shown:
        return None
    points = [
        (number, speedup, kind, where)
        for number, timing, where in shown
        for kind, speedup in (("eager", timing.eager), ("compile", timing.compile))
        if speedup
    ]
    axis = _Axis([speedup.ratio for _, speedup, _, _ in points], columns=last + 1)
    return Chart(
        marks=tuple(_mark(axis, *point) for point in points),
        ticks=tuple((axis.y(tick), f"{tick:g}×") for tick in TICKS if axis.low <= tick <= axis.high),
        turns=tuple((axis.x(number), where.removeprefix("turn ")) for number, _, where in shown),
        one=axis.y(1.0),
    )


class _Axis:
    def __init__(self, ratios: Sequence[float], *, columns: int) -> None:
        self.low, self.high = min(SPAN[0], min(ratios) / 1.5), max(SPAN[1], max(ratios) * 1.5)
        self._columns = max(columns, 2)

    def x(self, number: int) -> float:
        inner = WIDTH - LEFT - RIGHT - 40
        return round(LEFT + 20 + inner * (number - 1) / (self._columns - 1), 1)

    def y(self, ratio: float) -> float:
        inside = min(max(ratio, self.low), self.high)
        share = math.log(inside / self.low) / math.log(self.high / self.low)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP), 1)


def _mark(axis: _Axis, number: int, speedup: Speedup, kind: str, where: str) -> Mark:
    shift = -4 if kind == "eager" else 4
    rival = "torch.compile" if kind == "compile" else "eager"
    words = f"{where}, vs {rival}: {speedup.ratio:.3f}× ({speedup.low:.3f}–{speedup.high:.3f}), {speedup.call}"
    y, low, high = axis.y(speedup.ratio), axis.y(speedup.low), axis.y(speedup.high)
    return Mark(round(axis.x(number) + shift, 1), y, low, high, kind, speedup.call, words)

"""One row of a collection's overview: what a run came to, in numbers and words."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from agent.judging.reports import Speedup
from agent.trajectory.events import Event, ObservationEvent, ReplyEvent, RunStart
from agent.ui.console import one_line
from agent.ui.progress import Progress
from agent.view.reading import StoredRun
from agent.view.verdicts import Judged, judged_of

State = Literal["settled", "unfinished", "not judged", "superseded"]
NAME_CHARS: Final = 120
MOST_TOKENS: Final = 2**53
LATEST_TURN: Final = 1_000_000
"""Both are more than any run has; a damaged number would stretch a plot, or not fit into it."""


@dataclass(frozen=True)
class Timed:
    """One comparison that the model had measured while it worked: the weaker speed-up, after so many turns."""

    turn: int
    speedup: Speedup
    rival: str


@dataclass(frozen=True)
class Row:
    """Times in seconds; `cost_usd` is None where a price is unknown; `sample` is None outside a collection."""

    path: str
    run_id: str
    task: str
    task_sha256: str
    sample: int | None
    model: str
    state: State
    reason: str
    reward: int | None
    judged: Judged | None
    turns: int
    tokens: int
    cost_usd: float | None
    wall_s: float
    began_at: float
    notes: tuple[str, ...]
    timed: tuple[Timed, ...]
    page: str = ""

    @property
    def scored(self) -> bool:
        return self.reward is not None

    @property
    def counts(self) -> bool:
        """Whether the run is part of plots and shares: the newest attempt of its task and sample, with a result."""
        return self.state == "settled"


def row_of(run: StoredRun) -> Row:
    """The row of one run; `superseded` is found out later, from all rows."""
    progress, start, reply_model = Progress(), None, ""
    for event in run.events:
        progress.add(event)
        start = event if isinstance(event, RunStart) else start
        reply_model = event.reply.model if isinstance(event, ReplyEvent) else reply_model
    record = run.record
    reason = record.reason if record else progress.reason
    return Row(
        path=str(run.folder.path),
        run_id=run.folder.run_id,
        task=one_line(run.task, NAME_CHARS),
        task_sha256=run.task_sha256,
        sample=_sample(run.folder.path),
        model=one_line(model_name(start.backend if start else {}, reply_model), NAME_CHARS),
        state=_state(run),
        reason=reason.value if reason else "",
        reward=record.reward if record else None,
        judged=record.judged if record else None,
        turns=progress.turn,
        tokens=min(progress.tokens, MOST_TOKENS),
        cost_usd=progress.cost_usd,
        wall_s=max(0.0, progress.end.wall_s if progress.end else progress.elapsed_s),
        began_at=run.events[0].t if run.events else 0.0,
        notes=run.notes,
        timed=tuple(timed_in(run.events)),
    )


def timed_in(events: Iterable[Event]) -> Iterable[Timed]:
    """Every comparison that `profile` made, in order."""
    for event in events:
        if not isinstance(event, ObservationEvent) or event.turn > LATEST_TURN:
            continue
        if event.name == "profile" and event.report:
            judged = judged_of(event.report)
            if weakest := judged.weakest:
                yield Timed(event.turn, weakest, "eager" if weakest is judged.eager else "torch.compile")


def mark_superseded(rows: Iterable[Row]) -> list[Row]:
    """Of several attempts at one sample, side by side in a collection, one counts: the newest that has a result."""
    listed = list(rows)
    chosen: dict[str, Row] = {}
    for row in listed:
        if row.sample is not None:
            place = str(Path(row.path).parent)
            chosen[place] = max(chosen.get(place, row), row, key=_standing)
    return [
        row if row.sample is None or chosen[str(Path(row.path).parent)] is row else replace(row, state="superseded")
        for row in listed
    ]


def _standing(row: Row) -> tuple[bool, float]:
    return row.state == "settled", row.began_at


def model_name(backend: Mapping[str, Any], replied: str) -> str:
    """What was asked for, else what the server called itself; a replay is named as one."""
    if backend.get("is_llm") is False:
        author = backend.get("author")
        return f"{backend.get('kind', 'replay')}, {author}" if author else str(backend.get("kind", "replay"))
    return str(backend.get("model") or replied or backend.get("kind") or backend.get("name") or "")


def _state(run: StoredRun) -> State:
    if run.record is None:
        return "unfinished"
    return "settled" if run.record.settled else "not judged"


def _sample(path: Path) -> int | None:
    """`…/tasks/<task>/<sample>/<run>` is the layout of a collection."""
    parents = path.parents
    inside = len(parents) > 2 and parents[2].name == "tasks" and parents[0].name.isdecimal()
    return int(parents[0].name) if inside else None

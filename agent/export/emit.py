"""The second pass: units become encoded rows, in workers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from agent.export.episodes import Skipped
from agent.export.files import Encoded, encode
from agent.export.formats import FORMATS, Layout
from agent.export.rows import RowSettings, Source, Unit

BATCH: Final = 8


@dataclass(frozen=True)
class Work:
    """Some units, and how they are written."""

    format: str
    layout: Layout
    settings: RowSettings
    units: tuple[Unit, ...]


@dataclass
class Emitted:
    """Rows in order with their splits, and what was counted. `written` holds the indices of units that gave rows."""

    rows: list[tuple[str, Encoded]] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    scrubbed: Counter[str] = field(default_factory=Counter)
    withheld: Counter[str] = field(default_factory=Counter)


def emit(work: Work) -> Emitted:
    """What a worker does. A run that changed since it was selected is counted, not an error."""
    found = FORMATS[work.format]
    source, emitted = Source(work.settings), Emitted()
    for unit in work.units:
        try:
            rows = [(unit.split, encode(row, found.sets[row.set], work.layout)) for row in found.rows(unit, source)]
        except Skipped as skipped:
            source.withheld[f"changed while exporting: {skipped.reason}"] += 1
            continue
        if rows:
            emitted.rows += rows
            emitted.written.append(unit.index)
    emitted.scrubbed, emitted.withheld = source.scrubbed, source.withheld
    return emitted


def work_of(units: Sequence[Unit], *, format: str, layout: Layout, settings: RowSettings) -> list[Work]:
    """Batches, in order."""
    return [Work(format, layout, settings, tuple(units[at : at + BATCH])) for at in range(0, len(units), BATCH)]

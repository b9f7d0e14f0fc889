"""Which runs are exported: the filters one after the other, with what each removed, and the units of the format."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.export.facts import Facts
from agent.export.filters import Filter
from agent.export.formats import UnitKind
from agent.export.pairs import make_pairs
from agent.export.rows import Unit
from agent.export.similarity import Nearest, Structure, nearest, structure_of
from agent.export.splits import Split, split_of
from agent.trajectory.folder import RunFolder


@dataclass(frozen=True)
class Step:
    """One line of the funnel. `alone`: how many this filter would have removed had it been the only one."""

    name: str
    removed: int
    left: int
    alone: int | None = None


@dataclass(frozen=True)
class Wanted:
    """What is to be selected."""

    needs_reward: bool = False
    filters: tuple[Filter, ...] = ()
    paper: tuple[Filter, ...] = ()
    benchmark: tuple[Structure, ...] = ()
    best_of_task: bool = False
    max_per_task: int | None = None


@dataclass
class Selection:
    """What is left, how it came to that, and the nearest benchmark problem of each task by sha256."""

    facts: list[Facts]
    steps: list[Step] = field(default_factory=list)
    neighbours: dict[str, Nearest | None] = field(default_factory=dict)

    def keep(self, name: str, keeps: Callable[[Facts], bool], *, alone: int | None = None) -> None:
        kept = [facts for facts in self.facts if keeps(facts)]
        self.steps.append(Step(name, len(self.facts) - len(kept), len(kept), alone))
        self.facts = kept


def select(facts: Sequence[Facts], wanted: Wanted) -> Selection:
    """`facts` in the order of everything that is written."""
    selection = Selection(list(facts))
    selection.keep("settled: judged, or ended by the model", lambda one: one.settled)
    if wanted.needs_reward:
        selection.keep("the reward is known", lambda one: one.reward is not None)
    before = list(selection.facts)
    for found in wanted.filters:
        selection.keep(f"filter: {found.text}", found.keeps, alone=_alone(found, before))
    for found in wanted.paper:
        selection.keep(f"paper filter {found.text}", found.keeps, alone=_alone(found, before))
    if wanted.benchmark:
        selection.neighbours = neighbours(selection.facts, wanted.benchmark)
        selection.keep("decontamination: similarity at most 0.9", lambda one: _is_clean(one, selection.neighbours))
    if wanted.best_of_task:
        _best(selection, "best of its task", 1)
    elif wanted.max_per_task is not None:
        _best(selection, f"at most {wanted.max_per_task} of a task", wanted.max_per_task)
    return selection


def neighbours(facts: Iterable[Facts], benchmark: Sequence[Structure]) -> dict[str, Nearest | None]:
    """For each task its nearest problem; None where the task has no class Model that could be compared."""
    found: dict[str, Nearest | None] = {}
    for one in facts:
        if one.task_sha256 not in found:
            structure = structure_of(RunFolder(Path(one.path)).task().text)
            found[one.task_sha256] = None if structure is None else nearest(structure, benchmark)
    return found


def make_units(
    selection: Selection, kind: UnitKind, splits: Sequence[Split], *, max_pairs: int | None = None
) -> list[Unit]:
    """In the order in which they are written."""
    if kind == "pair":
        pairs = make_pairs(selection.facts, most=max_pairs)
        used = len({facts.key for pair in pairs for facts in pair})
        selection.steps.append(Step("in a pair beyond doubt", len(selection.facts) - used, used))
        return [Unit(at, split_of(pair[0].task_sha256, splits), pair) for at, pair in enumerate(pairs)]
    if kind == "task":
        groups = _by_task(selection.facts)
        return [
            Unit(at, split_of(task, splits), (runs[0],), _task_summary(runs))
            for at, (task, runs) in enumerate(groups.items())
        ]
    return [Unit(at, split_of(one.task_sha256, splits), (one,)) for at, one in enumerate(selection.facts)]


def best_first(facts: Facts) -> tuple[Any, ...]:
    """Sort key: accepted, reward, speed-up over the hardest rival, fewer turns, then the order of writing."""
    accepted, reward, ratio = facts.rank
    return (-int(accepted), -reward, -ratio, facts.turns, facts.key)


def _best(selection: Selection, name: str, most: int) -> None:
    kept = {one.key for runs in _by_task(selection.facts).values() for one in sorted(runs, key=best_first)[:most]}
    selection.keep(name, lambda one: one.key in kept)


def _by_task(facts: Iterable[Facts]) -> dict[str, list[Facts]]:
    groups: defaultdict[str, list[Facts]] = defaultdict(list)
    for one in facts:
        groups[one.task_sha256].append(one)
    return dict(groups)


def _alone(found: Filter, facts: Sequence[Facts]) -> int:
    return sum(not found.keeps(one) for one in facts)


def _is_clean(facts: Facts, found: Mapping[str, Nearest | None]) -> bool:
    near = found[facts.task_sha256]
    return near is None or not near.contaminated


def _task_summary(runs: Sequence[Facts]) -> dict[str, Any]:
    rewards = [one.reward for one in runs if one.reward is not None]
    mean = round(sum(rewards) / len(rewards), 6) if rewards else None
    return {"runs": len(runs), "mean_reward": mean, "best_reward": max(rewards, default=None)}

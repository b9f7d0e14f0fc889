"""Preference pairs of one task: a better and a worse episode, only where the judge's intervals leave no doubt.

A pair is an accepted and a rejected submission; or two accepted ones, timed on the same device, of which the better has
no lower reward, and its 95 % interval lies wholly above the other's against every rival that both were timed against.
Both were judged by the same judge under the same rules: what one judge accepts, another may have learned to reject.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from agent.export.facts import Facts

Pair = tuple[Facts, Facts]


def make_pairs(facts: Iterable[Facts], *, most: int | None) -> list[Pair]:
    """Pairs in order of their tasks; the best run with the worst first, each run in one pair, `most` a task."""
    groups: defaultdict[tuple[str | None, ...], list[Facts]] = defaultdict(list)
    for one in facts:
        judge = (one.judge_version, one.tools_sha256, one.target, one.policy, one.precision)
        groups[(one.task_sha256, one.prompt_sha256, *judge)].append(one)
    by_task: defaultdict[str, list[Pair]] = defaultdict(list)
    for key in sorted(groups, key=lambda key: tuple(part or "" for part in key)):
        by_task[str(key[0])].extend(_pairs(groups[key]))
    return [pair for task in sorted(by_task) for pair in by_task[task][:most]]


def beyond_doubt(better: Facts, worse: Facts) -> bool:
    """Whether `better` is better than `worse` whatever the noise of measuring."""
    if not better.accepted:
        return False
    if worse.verdict == "rejected":
        return True
    if not worse.accepted or (better.reward or 0) < (worse.reward or 0) or better.device != worse.device:
        return False
    intervals = [
        (low, high)
        for low, high in ((better.low_eager, worse.high_eager), (better.low_compile, worse.high_compile))
        if low is not None and high is not None
    ]
    return bool(intervals) and all(low > high for low, high in intervals)


def _pairs(group: Sequence[Facts]) -> Iterator[Pair]:
    ordered = sorted(group, key=lambda facts: (_descending(facts.rank), facts.key))
    used: set[int] = set()
    for at, better in enumerate(ordered):
        if at in used:
            continue
        found = next(
            (
                other
                for other in range(len(ordered) - 1, at, -1)
                if other not in used and beyond_doubt(better, ordered[other])
            ),
            None,
        )
        if found is not None:
            used.update((at, found))
            yield better, ordered[found]


def _descending(rank: tuple[bool, int, float]) -> tuple[float, ...]:
    return tuple(-float(part) for part in rank)

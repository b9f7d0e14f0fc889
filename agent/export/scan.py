"""The first pass over stored runs: the facts of each, or the reason why it is skipped."""

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.export.episodes import Episode, Skipped, read_episode
from agent.export.facts import Facts, facts_of
from agent.export.pool import batches, ordered_map
from agent.trajectory.folder import RunFolder
from agent.trajectory.stored import find_runs

BATCH: Final = 32
EXAMPLES_PER_REASON: Final = 5


@dataclass
class Scan:
    """`facts` in the order of everything that is written; `skipped` and `examples` by reason."""

    found: int = 0
    duplicates: int = 0
    facts: list[Facts] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)


def scan_runs(paths: Iterable[Path], *, jobs: int) -> Iterator[Scan]:
    """Yields the growing scan after each batch of runs; the last one is complete and sorted, without duplicates."""
    scan = Scan()
    yield scan
    runs = (str(folder.path) for folder in find_runs(paths))
    for results in ordered_map(scan_batch, batches(runs, BATCH), jobs=jobs):
        for path, result in results:
            scan.found += 1
            _take(scan, path, result)
        yield scan
    scan.facts.sort(key=_order)
    unique = list({facts.key: facts for facts in reversed(scan.facts)}.values())[::-1]
    scan.duplicates = len(scan.facts) - len(unique)
    scan.facts = unique
    yield scan


def scan_batch(paths: Sequence[str]) -> list[tuple[str, Facts | tuple[str, str]]]:
    """What a worker does: for each run its facts, or (reason, detail)."""
    return [(path, _scan_one(Path(path))) for path in paths]


def prompt_sha256(episode: Episode) -> str:
    """Over everything that was said before the first reply, and the tools."""
    opening = itertools.takewhile(lambda message: message.role != "assistant", episode.messages)
    said = [[message.role, message.content] for message in opening]
    tools = [tool.model_dump() for tool in episode.start.tools]
    return hashlib.sha256(json.dumps([said, tools], sort_keys=True).encode("ascii")).hexdigest()


def _scan_one(path: Path) -> Facts | tuple[str, str]:
    try:
        episode = read_episode(RunFolder(path))
    except Skipped as skipped:
        return skipped.reason, skipped.detail
    return facts_of(episode, prompt_sha256=prompt_sha256(episode))


def _order(facts: Facts) -> tuple[tuple[str, ...], bool, int, str]:
    """Of copies of one run that were judged differently, the one judged again comes first, then the lower reward."""
    return facts.key, facts.tools_sha256 is None, -2 if facts.reward is None else facts.reward, facts.path


def _take(scan: Scan, path: str, result: Facts | tuple[str, str]) -> None:
    if isinstance(result, Facts):
        scan.facts.append(result)
        return
    reason, detail = result
    scan.skipped[reason] += 1
    examples = scan.examples.setdefault(reason, [])
    if len(examples) < EXAMPLES_PER_REASON:
        examples.append(f"{Path(path).name}: {detail.replace(path, '<run>')}")

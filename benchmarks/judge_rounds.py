"""How often a judge that stops early is wrong, and after how many rounds it does: `python benchmarks/judge_rounds.py`.

Rounds are drawn from recorded ones: of every verdict.json that is given (default: the examples' recorded runs) the
paired ratios, divided by their median, in blocks of three that follow each other. Where no rounds were recorded (a
GPU), they are made with the spread that the intervals there show: normal, one in ten three times as wide. A submission
of a known true ratio is then judged again and again, with the rule that tools/referee/stopping.py holds and with the
one before it. Covers the rule, with the judge's own bootstrap on a faster random generator. Does not cover drift over
more than a few rounds, nor rounds that are left out because the machine was not quiet.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from referee import bootstrap, stopping  # noqa: E402
from referee.samples import Sample, Times  # noqa: E402

BLOCK = 3
SPREADS = {"GPU, 0.5 % a round": 0.005, "GPU, 2 % a round": 0.02, "GPU, 6 % a round": 0.06}
RATIOS = (0.97, 1.0, 1.02, 1.05, 1.08, 1.15, 1.5)
Noise = Callable[[np.random.Generator, int], np.ndarray]
Rule = Callable[[Times, str], bool]


@dataclass(frozen=True)
class Ended:
    """One simulated judgement."""

    rounds: int
    faster: bool
    much_faster: bool


def fast_interval(ratios: list[float], *, resamples: int = bootstrap.RESAMPLES) -> bootstrap.Interval:
    """bootstrap.interval with numpy's generator: 4,000 judgements instead of 40 in the same time."""
    values = np.asarray(ratios)
    drawn = values[_generator.integers(0, len(values), (resamples, len(values)))]
    medians = np.sort(np.median(drawn, axis=1))
    low, high = medians[int(0.025 * resamples)], medians[int(0.975 * resamples) - 1]
    return bootstrap.Interval(ratio=statistics.median(ratios), low=float(low), high=float(high))


_generator = np.random.default_rng(0)


def rule_now(times: Times, target: str) -> bool:
    return len(times.samples["submission"]) >= stopping.MOST_ROUNDS[target] or stopping.enough(times)


def rule_before(times: Times, target: str) -> bool:
    """Until 2026-11-30: 40 rounds, half-widths of 0.8 %, or (on a GPU) 95 % intervals that exclude both margins."""
    number = len(times.samples["submission"])
    if number >= 40:
        return True
    if number % 2 or number < 8:
        return False
    found = [times.interval(rival, resamples=500) for rival in stopping.RIVALS]
    widths = [(interval.high - interval.low) / 2 / interval.ratio for interval in found]
    near = any(interval.low <= margin <= interval.high for interval in found for margin in (1.0, 1.05))
    if target == "cuda" and max(widths) <= 0.025 and not near:
        return True
    return number >= 10 and max(widths) <= 0.008


def judged(noise: tuple[Noise, Noise], ratio: float, rule: Rule, target: str, *, seed: int) -> Ended:
    """One judgement of a submission with this true ratio to eager and compile; the same seed gives the same rounds."""
    generator = np.random.default_rng(seed)
    series = [ratio * draw(generator, 40) for draw in noise]
    times = Times(calls=10, samples={"eager": [], "compile": [], "submission": []})
    while not rule(times, target):
        at = len(times.samples["submission"])
        for name, us in (("eager", series[0][at]), ("compile", series[1][at]), ("submission", 1.0)):
            times.samples[name].append(Sample(us=float(us), reply_us=1.0, cpu_us=1.0, waited_share=0.0))
    found = times.interval("eager")
    return Ended(len(times.samples["submission"]), found.low > 1.0, found.low > 1.05)


def recorded(paths: list[Path]) -> Iterator[tuple[str, Noise, Noise]]:
    """Noise of the rounds in verdicts, eager's and compile's."""
    for path in paths:
        for timing in _timings(json.loads((path / "verdict.json").read_text(encoding="utf-8"))):
            us = {name: np.asarray(side)[timing["rounds_used"]] for name, side in timing["rounds_us"].items()}
            if len(us["submission"]) >= 2 * BLOCK:
                yield (
                    path.parent.name,
                    _blocks(us["eager"] / us["submission"]),
                    _blocks(us["compile"] / us["submission"]),
                )


def _timings(data: Any) -> Iterator[dict[str, Any]]:
    """Of best and final, once where they are one."""
    seen = []
    for subject in ("best", "final"):
        timing = ((data.get(subject) or {}).get("evidence") or {}).get("timing")
        if timing and timing not in seen:
            seen.append(timing)
            yield timing


def _blocks(ratios: np.ndarray) -> Noise:
    centred = ratios / np.median(ratios)

    def draw(generator: np.random.Generator, count: int) -> np.ndarray:
        starts = generator.integers(0, len(centred), -(-count // BLOCK))
        return np.concatenate([np.take(centred, range(at, at + BLOCK), mode="wrap") for at in starts])[:count]

    return draw


def _made(spread: float) -> Noise:
    def draw(generator: np.random.Generator, count: int) -> np.ndarray:
        wide = np.where(generator.random(count) < 0.1, 3.0, 1.0)
        return np.exp(generator.normal(0.0, spread, count) * wide)

    return draw


def table(name: str, noise: tuple[Noise, Noise], target: str, runs: int, ratios: Sequence[float]) -> None:
    print(f"\n{name}: of {runs} judgements, share called faster than eager, more than 5 % faster; rounds (median)")
    print(f"{'true ratio':>10} {'before':>28} {'now':>28}")
    for ratio in ratios:
        cells = []
        for rule in (rule_before, rule_now):
            ended = [judged(noise, ratio, rule, target, seed=seed) for seed in range(runs)]
            faster = statistics.mean(one.faster for one in ended)
            much = statistics.mean(one.much_faster for one in ended)
            cells.append(f"{faster:7.1%} {much:7.1%} {statistics.median(one.rounds for one in ended):5.0f}")
        print(f"{ratio:10.2f} {cells[0]:>28} {cells[1]:>28}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="*", help="folders with a verdict.json")
    parser.add_argument("--judgements", type=int, default=1000)
    parser.add_argument("--ratios", type=float, nargs="+", default=RATIOS)
    parser.add_argument("--target", choices=("cpu", "cuda"), action="append", help="default: both")
    flags = parser.parse_args()
    bootstrap.interval = fast_interval
    targets = flags.target or ["cuda", "cpu"]
    if "cuda" in targets:
        for spread_name, spread in SPREADS.items():
            table(spread_name, (_made(spread), _made(spread)), "cuda", flags.judgements, flags.ratios)
    if "cpu" in targets:
        for name, eager, compiled in recorded(flags.runs or sorted((ROOT / "examples").glob("*/run"))):
            table(f"CPU, {name}", (eager, compiled), "cpu", flags.judgements, flags.ratios)
    return 0


if __name__ == "__main__":
    sys.exit(main())

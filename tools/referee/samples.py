"""Samples of timed batches, and what follows from them: medians, paired ratios, intervals, quietness."""

import contextlib
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from referee import bootstrap

FEWEST_ROUNDS: Final = 6
QUIET: Final = 0.05  # share of a batch's time in which its threads waited for a CPU
FEW_WAITS: Final = 3
NOISE_UNKNOWN: Final = 2.0
LEAST_LEFT: Final = 0.7  # share of a window that is never taken for protocol


@dataclass(frozen=True)
class Sample:
    """One batch on one side."""

    us: float  # per call
    reply_us: float
    cpu_us: float
    waited_share: float


@dataclass
class Times:
    """All samples, in order of rounds; `calls` is the size of every batch."""

    calls: int = 0
    order: list[str] = field(default_factory=list)
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    compared: int = 0
    compiled: dict[str, int] = field(default_factory=dict)
    batch_bytes: int = 0
    copy_gb_per_s: float = 0.0
    output_bytes: int = 0
    foreign_share: float = 0.0
    empty_us: list[float] = field(default_factory=list)  # windows of a trusted worker without a batch
    # Microseconds of windows outside their calls, of trusted workers; on a GPU their lower quartile comes off every
    # window.
    protocol_us: list[float] = field(default_factory=list)
    between: float = 0.0  # share by which two equal processes differ for as long as they live
    spent_s: dict[str, float] = field(default_factory=dict)  # of all rounds: where a judgement's own time goes

    @contextlib.contextmanager
    def spending(self, what: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.spent_s[what] = self.spent_s.get(what, 0.0) + time.perf_counter() - started

    def quiet(self) -> list[int]:
        """Rounds in which nobody waited for a CPU; all rounds where too few are quiet."""
        return self._undisturbed() if self.is_quiet() else list(range(len(self.samples["submission"])))

    def is_quiet(self) -> bool:
        return len(self._undisturbed()) >= FEWEST_ROUNDS

    def _undisturbed(self) -> list[int]:
        rounds = range(len(self.samples["submission"]))
        sides = [side for name, side in self.samples.items() if name != "submission" or not self._waits_by_itself()]
        return [at for at in rounds if all(side[at].waited_share < QUIET for side in sides)]

    def _waits_by_itself(self) -> bool:
        """Whether the submission waits for CPUs far more often than a baseline does: more threads than there are CPUs,
        or rounds that it wants to be left out. What others do to a machine they do to all sides alike.
        """
        waits = {name: [sample.waited_share >= QUIET for sample in side] for name, side in self.samples.items()}
        mine = waits.pop("submission")
        alone = sum(wait and not any(others) for wait, *others in zip(mine, *waits.values(), strict=True))
        theirs = max(sum(wait and not own for wait, own in zip(side, mine, strict=True)) for side in waits.values())
        return bool(alone > 2 * theirs + FEW_WAITS)

    def us(self, side: str, at: int) -> float:
        """Microseconds of one call in round `at`, without what the protocol takes."""
        measured = self.samples[side][at].us
        if not self.protocol_us:
            return measured
        return max(measured - self.protocol() / self.calls, measured * LEAST_LEFT)

    def protocol(self) -> float:
        """Rather too little than too much: what is taken off makes both sides smaller and their ratio larger."""
        few = len(self.protocol_us) < 4
        return min(self.protocol_us) if few else statistics.quantiles(self.protocol_us, n=4)[0]

    def ratios(self, baseline: str) -> list[float]:
        return [self.us(baseline, at) / self.us("submission", at) for at in self.quiet()]

    def interval(self, baseline: str, *, resamples: int = bootstrap.RESAMPLES) -> bootstrap.Interval:
        """Widened by what processes differ by, and where the machine was not quiet by what each side shows against
        itself if that is more.
        """
        factor = 1 + self.between
        if not self.is_quiet():
            factor = max(factor, *(self._self_noise(side) for side in ("submission", baseline)))
        return self.of_rounds(baseline, resamples=resamples).widened(factor)

    def of_rounds(self, baseline: str, *, resamples: int = bootstrap.RESAMPLES) -> bootstrap.Interval:
        """What the rounds alone say: only this part of an interval is narrowed by more of them."""
        return bootstrap.interval(self.ratios(baseline), resamples=resamples)

    def _self_noise(self, side: str) -> float:
        itself = self.against_itself(side)
        return NOISE_UNKNOWN if itself is None else max(itself.high, 1 / itself.low)

    def median_us(self, side: str) -> float:
        return statistics.median(self.us(side, at) for at in self.quiet())

    def against_itself(self, side: str = "submission") -> bootstrap.Interval | None:
        """One side in one round against itself in the next: what noise alone does to a ratio."""
        us = [self.us(side, at) for at in self.quiet()]
        pairs = [(us[at] / us[at + 1]) ** (1 if at % 4 == 0 else -1) for at in range(0, len(us) - 1, 2)]
        return bootstrap.interval(pairs) if len(pairs) >= 3 else None


def report(times: Times) -> dict[str, Any]:
    """Evidence: raw samples in microseconds, order, quietness."""
    itself = times.against_itself()
    return {
        "calls_per_batch": times.calls,
        "order": " ".join(times.order[1:]),
        "spent_s": {name: round(seconds, 3) for name, seconds in times.spent_s.items()},
        "rounds_us": {name: [round(sample.us, 3) for sample in side] for name, side in times.samples.items()},
        "cpu_us": {name: [round(sample.cpu_us, 3) for sample in side] for name, side in times.samples.items()},
        "reply_us": {name: [round(sample.reply_us, 3) for sample in side] for name, side in times.samples.items()},
        "waited_share": {
            name: [round(sample.waited_share, 4) for sample in side] for name, side in times.samples.items()
        },
        "foreign_cpu_share": round(times.foreign_share, 3),
        "empty_window_us": round(statistics.median(times.empty_us), 1) if times.empty_us else None,
        "protocol_us": round(times.protocol(), 1) if times.protocol_us else None,
        "quiet": times.is_quiet(),
        "rounds_used": times.quiet(),
        "against_itself": None if itself is None else itself.report(),
        "outputs_compared": times.compared,
        "compiled": times.compiled,
        "bytes_per_call": times.batch_bytes,
        "copy_gb_per_s": round(times.copy_gb_per_s, 2),
    }

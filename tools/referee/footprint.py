"""Evidence that a submission cannot write itself: where inside torch's compute library its calls went (see pages.py),
under policy strict, and torch's precision flags in the middle of a call (see flags.py), under every policy.
"""

import random
from collections.abc import Callable
from typing import Final

from referee import challenge, correctness, evidence, pages
from referee.correctness import ORACLE_LIMIT_S, Trial
from referee.launch import Worker
from referee.outcome import Rejected

# Places (64 KiB of code each) beyond what allocation and views need. Measured: own kernels 0 to 2, one pointwise
# operator 8 and more.
MOST: Final = 5


class Looks:
    """Looks at a stopped worker at secret moments on its way through a batch: precision flags, and under strict code
    pages that are present then, files mapped executable, processes beside it. What a call cleans up before it ends is
    seen as well.
    """

    def __init__(self, trial: Trial, *, batch_s: float) -> None:
        self._trial = trial
        self._batch_s = batch_s

    def __call__(self, worker: Worker | None) -> float:
        if worker is not None:
            self._look(worker)
        return random.SystemRandom().uniform(0.0, self._batch_s / 8)

    def _look(self, worker: Worker) -> None:
        worker.check_flags()
        self._trial.looks += 1
        if self._trial.policy != "strict":
            return
        worker.check_alone()
        maps = worker.mappings()
        self._trial.files.update(evidence.mapped_code(maps))
        if worker.table is not None:
            self._trial.seen |= pages.places(worker.table, spans=pages.spans_in(maps))


def begin(trial: Trial) -> None:
    """From here on the code that runs is noted, by the kernel."""
    trial.seen = set()
    if trial.policy == "strict" and trial.submission.table is not None:
        trial.submission.call("let_go", timeout_s=30.0)


def beyond(trial: Trial) -> int | None:
    """Places that the submission has executed since `begin` and the yardstick has not; None where the kernel keeps
    no such table.
    """
    table = trial.submission.table
    if trial.policy != "strict" or table is None or trial.yardstick is None:
        return None
    spans = pages.spans_in(trial.submission.mappings())
    found = pages.places(table, spans=spans) | trial.seen
    return len(found - _yardstick(trial, trial.yardstick))


def _yardstick(trial: Trial, worker: Worker) -> set[int]:
    worker.call("let_go", timeout_s=30.0)
    batch = challenge.draw(trial.oracle, seeds=trial.seeds.many("yardstick", 0, 2), timeout_s=ORACLE_LIMIT_S)
    placed = challenge.place(worker, batch, perturb=0, weights=trial.state)
    challenge.run(worker, batch, placed, timeout_s=30.0)
    assert worker.table is not None
    return pages.places(worker.table, spans=pages.spans_in(worker.mappings()))


def check(trial: Trial, *, again: Callable[[], None]) -> None:
    """Raise where more of torch ran than the yardstick needs, twice: `again` does once more what was looked at.

    A watched call is made first, because it can name operators.
    """
    found = beyond(trial)
    if found is not None and found > MOST:
        begin(trial)
        again()
        found = min(found, beyond(trial) or 0)
    trial.notes["places_beyond_allowed"] = found
    if found is not None and found > MOST:
        correctness.watched(trial)
        raise Rejected(
            "policy.torch_op",
            f"code of torch's compute library ran in {found} places beyond allocation and views, whatever called it: "
            "under policy strict the forward computes with its own compiled functions only",
        )

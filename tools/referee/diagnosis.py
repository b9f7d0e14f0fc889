"""Why an output is wrong, so that the reason names what the submission does: stale, unfinished, unwritten,
imprecise, or just wrong.
"""

import time
from dataclasses import dataclass, field
from typing import Final

import torch

from referee import challenge, compare, freeze
from referee.challenge import Answer
from referee.launch import Worker
from referee.numerics import Tolerance
from referee.outcome import Rejected
from referee.truth import Truth

GRACE_S: Final = 1.0
IMPRECISE: Final = 0.02  # a wrong output that is this close is computed from the right inputs, in too low a precision
KEPT: Final = 6

Leaves = list[torch.Tensor]


@dataclass
class History:
    """What earlier calls should have returned."""

    outputs: list[Leaves] = field(default_factory=list)

    def remember(self, leaves: Leaves) -> None:
        # Copies on a GPU: a view would keep all that was computed beside it.
        kept = [leaf.clone() if leaf.is_cuda else leaf for leaf in leaves]
        self.outputs = [*self.outputs, kept][-KEPT:]


def explain(
    mismatch: compare.Mismatch,
    *,
    worker: Worker,
    answer: Answer,
    index: int,
    outputs: Leaves,
    known: Truth,
    item: int,
    tolerances: list[Tolerance],
    history: History,
    old_weights: Leaves | None,
    perturb: int,
) -> Rejected:
    """The reason for a mismatch in call `index` of a batch, item `item` of what is known. The worker runs on for a
    moment to see whether it would have finished.
    """
    told = mismatch.told()

    def fits(candidate: Leaves, wanted: Leaves) -> bool:
        return compare.find_mismatch(candidate, truth=wanted, reference=wanted, tolerances=tolerances) is None

    if old_weights is not None and fits(outputs, old_weights):
        return Rejected(
            "replay.cached_weights", "the output belongs to the weights before the last change: read them on every call"
        )
    if any(fits(outputs, earlier) for earlier in history.outputs):
        return Rejected(
            "replay.stale_output", "the output belongs to an earlier call's inputs: compute it from this call's"
        )
    later = _a_moment_later(worker, answer, index)
    if later is not None and known.mismatch(later, item, tolerances) is None:
        return Rejected(
            "timing.unfinished",
            "the output was not finished when forward returned: something computed on in the background",
        )
    leaf = mismatch.leaf
    if _unwritten(outputs[leaf], known.truth[item][leaf], perturb):
        return Rejected(
            "numeric.unwritten",
            f"part of output {leaf} was never written (memory from torch.empty shows through); {told}",
        )
    if challenge.shared_outputs(answer):
        return Rejected(
            "replay.shared_output", f"outputs of different calls share memory, a later call overwrote this one; {told}"
        )
    if outputs[leaf].numel() and not bool(outputs[leaf].to(torch.bool).any()):
        return Rejected("numeric.mismatch", f"the output is all zeros; {told}")
    if mismatch.error.largest < IMPRECISE or mismatch.error.rms < IMPRECISE / 4:
        return Rejected("numeric.precision", f"the computation is less precise than the task's dtype asks for; {told}")
    return Rejected("numeric.mismatch", told)


def _unwritten(output: torch.Tensor, truth: torch.Tensor, perturb: int) -> bool:
    """Whether elements hold the pattern with which malloc filled new memory."""
    if not perturb or not output.numel() or output.element_size() < 4:
        return False
    raw = output.reshape(-1).view(torch.uint8).view(-1, output.element_size())
    return bool((raw == (perturb ^ 0xFF)).all(dim=1).any())


def _a_moment_later(worker: Worker, answer: Answer, index: int) -> Leaves | None:
    try:
        freeze.resume(worker.pid)
        time.sleep(GRACE_S)
        freeze.stop(worker.pid)
        return challenge.read_outputs(worker, answer, index)
    except (freeze.Gone, OSError, Rejected):
        return None

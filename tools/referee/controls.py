"""Outputs that must not pass: if one does, the task has no tolerance that judges it, and no verdict is given."""

from dataclasses import dataclass, field

import torch

from referee import compare
from referee.numerics import Tolerance
from referee.outcome import Unjudgeable
from referee.truth import LOWER_BITS, Leaves, Truth


@dataclass
class Controls:
    """Collected while rounds run, decided when the tolerances are known in full."""

    precision: str
    pending: list[tuple[str, Leaves, Leaves, Leaves, list[Tolerance]]] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)

    def collect(self, truth: Truth, tolerances: list[Tolerance], *, weighted: bool) -> None:
        """Zeros, a constant, the previous output, the next lower precision and, where weights changed, the old
        weights.
        """
        reference, want = truth.reference[0], truth.truth[0]
        self._add("zeros", [torch.zeros_like(leaf) for leaf in reference], truth, tolerances)
        self._add("constant", [_constant(leaf) for leaf in want], truth, tolerances)
        if len(truth.reference) > 1:
            self._add("previous_output", truth.reference[1], truth, tolerances)
        lower = truth.variants.get(f"bits{LOWER_BITS[self.precision]}", [None])[0]
        if lower is not None and not _identical(lower, reference):
            self._add("lower_precision", lower, truth, tolerances)
        old = truth.variants.get("previous_weights", [None])[0]
        if weighted and old is not None:
            self._add("perturbed_weights", old, truth, tolerances)

    def _add(self, name: str, outputs: Leaves, truth: Truth, tolerances: list[Tolerance]) -> None:
        fitting = [output.to(leaf.dtype) for output, leaf in zip(outputs, truth.reference[0], strict=True)]
        self.pending.append((name, fitting, truth.truth[0], truth.reference[0], tolerances))

    def decide(self) -> None:
        """A control that passes once makes the task unjudgeable."""
        for name, outputs, want, reference, tolerances in self.pending:
            if compare.find_mismatch(outputs, truth=want, reference=reference, tolerances=tolerances) is None:
                raise Unjudgeable(
                    "task.unjudgeable", f"no tolerance tells the right output from this one: {_TOLD[name]}"
                )
            if name not in self.rejected:
                self.rejected.append(name)


_TOLD = {
    "zeros": "zeros (the task's output is zero, or empty)",
    "constant": "one constant in all elements",
    "previous_output": "the output of another input (the output does not depend on the inputs)",
    "lower_precision": "the output computed in the next lower precision",
    "perturbed_weights": "the output under other weights (the output does not depend on the weights)",
}


def _constant(leaf: torch.Tensor) -> torch.Tensor:
    if not leaf.numel():
        return leaf
    if leaf.dtype.is_floating_point or leaf.dtype.is_complex:
        kept = leaf[torch.isfinite(leaf)]
        return torch.full_like(leaf, kept.mean().item() if kept.numel() else 0.0)
    return torch.full_like(leaf, leaf.flatten()[0].item())


def _identical(ones: Leaves, others: Leaves) -> bool:
    return all(torch.equal(one, other) for one, other in zip(ones, others, strict=True))

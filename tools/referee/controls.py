"""Outputs that must not pass: if one does, the task has no tolerance that judges it, and no verdict is given.

Not so the next lower precision, nor what leaves something out: tolerances shrink until it is rejected (see `numerics`),
unless it has lost nothing. Left out are an eighth of the rows of all inputs (others take their place, so that a mean
stays one) and branches whose weights are so small that the output hardly shows them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import torch

from referee import numerics
from referee.numerics import Error, Tolerance
from referee.outcome import Unjudgeable
from referee.sizes import are_values
from referee.truth import BRANCH, LOWER_BITS, ROWS, Leaves, Truth

LOWER: Final = "lower_precision"
SHRINKING: Final = (LOWER, ROWS[0], BRANCH)


@dataclass
class Controls:
    """Collected while rounds run, decided when the tolerances are known in full."""

    precision: str
    pending: list[tuple[str, Leaves, Truth, int, list[Tolerance]]] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    indistinct: list[str] = field(default_factory=list)

    def collect(self, truth: Truth, tolerances: list[Tolerance], *, weighted: bool) -> None:
        """Zeros, a constant, the output of another input, the next lower precision and, where weights changed, the
        old ones.
        """
        for item, reference in enumerate(truth.reference):
            want = truth.truth[item]
            self._add("zeros", [torch.zeros_like(leaf) for leaf in reference], truth, item, tolerances)
            if any(leaf.numel() > 1 for leaf in want):  # a single number is a constant
                self._add("constant", [_constant(leaf) for leaf in want], truth, item, tolerances)
            if len(truth.reference) > 1:
                self._add("previous_output", truth.reference[item - 1], truth, item, tolerances)
            lower = self._variant(truth, f"bits{LOWER_BITS[self.precision]}", item)
            if lower is not None and not _identical(lower, reference):
                self._forbid(lower, truth, item, tolerances)
                self._add(LOWER, lower, truth, item, tolerances)
            for name in (*ROWS, BRANCH):
                told = ROWS[0] if name in ROWS else name
                self._leave_out(told, self._variant(truth, name, item), truth, item, tolerances)
            old = self._variant(truth, "previous_weights", item)
            if weighted and old is not None:
                self._add("perturbed_weights", old, truth, item, tolerances)

    @staticmethod
    def _variant(truth: Truth, name: str, item: int) -> Leaves | None:
        found = truth.variants.get(name)
        return None if found is None or item >= len(found) else found[item]

    def _forbid(self, lower: Leaves, truth: Truth, item: int, tolerances: list[Tolerance]) -> None:
        honest = numerics.HONEST if self.precision == "strict" else numerics.DECLARED
        for tolerance, error in _errors(lower, truth, item, tolerances):
            tolerance.forbid(error, honest=honest)

    def _leave_out(
        self, name: str, outputs: Leaves | None, truth: Truth, item: int, tolerances: list[Tolerance]
    ) -> None:
        reference = truth.reference[item]
        if outputs is None or [leaf.shape for leaf in outputs] != [leaf.shape for leaf in reference]:
            return
        if _identical(outputs, reference):
            return
        for tolerance, error in _errors(outputs, truth, item, tolerances):
            tolerance.miss(name, error)
        self._add(name, outputs, truth, item, tolerances)

    def _add(self, name: str, outputs: Leaves, truth: Truth, item: int, tolerances: list[Tolerance]) -> None:
        fitting = [output.to(leaf.dtype) for output, leaf in zip(outputs, truth.reference[item], strict=True)]
        self.pending.append((name, fitting, truth, item, tolerances))

    def decide(self) -> None:
        """A control that passes on every input makes the task unjudgeable; one that is rejected once stays rejected."""
        passed: list[str] = []
        for name, outputs, truth, item, tolerances in self.pending:
            if name in self.rejected:
                continue
            if truth.mismatch(outputs, item, tolerances) is None:
                passed.append(name)
            else:
                self.rejected.append(name)
        self.indistinct = [name for name in SHRINKING if name in passed and name not in self.rejected]
        for name in passed:
            if name not in self.rejected and name not in SHRINKING:
                raise Unjudgeable(
                    "task.unjudgeable", f"no tolerance tells the right output from this one: {_TOLD[name]}"
                )

    def decide_again(self) -> None:
        """With tolerances that have grown since."""
        self.rejected = []
        self.decide()


_TOLD = {
    "zeros": "zeros (the task's output is zero, or empty)",
    "constant": "one constant in all elements",
    "previous_output": "the output of another input (the output does not depend on the inputs)",
    "perturbed_weights": "the output under other weights (the output does not depend on the weights)",
}


def _errors(outputs: Leaves, truth: Truth, item: int, tolerances: list[Tolerance]) -> Iterator[tuple[Tolerance, Error]]:
    """Of the tensors that have rounding errors."""
    for at, (output, tolerance) in enumerate(zip(outputs, tolerances, strict=True)):
        want, exact = truth.truth[item][at], truth.reference[item][at]
        if are_values(exact.dtype):
            sizes = tolerance.sizes(want, truth.rounded(item, at))
            yield tolerance, numerics.measure(output.to(exact.dtype), truth=want, reference=exact, sizes=sizes)


def _constant(leaf: torch.Tensor) -> torch.Tensor:
    if not leaf.numel():
        return leaf
    if are_values(leaf.dtype):
        kept = leaf[torch.isfinite(leaf)]
        return torch.full_like(leaf, kept.mean().item() if kept.numel() else 0.0)
    return torch.full_like(leaf, leaf.flatten()[0].item())


def _identical(ones: Leaves, others: Leaves) -> bool:
    return all(torch.equal(one, other) for one, other in zip(ones, others, strict=True))

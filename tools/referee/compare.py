"""Compares what was read from a worker with the truth: structure, shape, dtype, other values, every element."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from referee import numerics, parts, tree
from referee.numerics import Error, Tolerance
from referee.outcome import Rejected
from referee.sizes import are_values

Leaves = list[torch.Tensor]

SPARSEST: Final = 64  # times the memory of a dense output; a view into something larger is allowed
SPARE_BYTES: Final = 1 << 24


@dataclass(frozen=True)
class Mismatch:
    """An output tensor that is not allowed: which one, how far off."""

    leaf: int
    error: Error
    tolerance: Tolerance

    def told(self) -> str:
        if self.error.detail:
            return f"output {self.leaf}: {self.error.detail}"
        return (
            f"output {self.leaf}: largest error {self.error.largest:.2g} (allowed {self.tolerance.largest:.2g}), "
            f"RMS error {self.error.rms:.2g} (allowed {self.tolerance.rms:.2g}), relative to value and row"
        )


def check_structure(spec: tree.Spec, *, expected: tree.Spec) -> None:
    """Nesting, dtypes and shapes must be the reference's (a list counts as a tuple); so must values that are no
    tensors.
    """
    check_tensors(spec, expected=expected)
    check_scalars(spec, expected=expected)


def check_tensors(spec: tree.Spec, *, expected: tree.Spec) -> None:
    """All of a structure but the values that are no tensors."""
    got, want = tree.shape_of(spec), tree.shape_of(expected)
    if got != want:
        ours, theirs = tree.tensors_of(expected), tree.tensors_of(spec)
        if len(ours) == len(theirs):
            for at, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
                if mine["shape"] != other["shape"]:
                    raise Rejected(
                        "numeric.shape", f"output {at} has shape {other['shape']}, the reference's is {mine['shape']}"
                    )
                if mine["dtype"] != other["dtype"]:
                    raise Rejected(
                        "numeric.dtype", f"output {at} is {other['dtype']}, the reference's is {mine['dtype']}"
                    )
        raise Rejected("numeric.structure", f"forward returns {_outline(got)}, the reference returns {_outline(want)}")
    for ours_layout, theirs_layout in zip(tree.tensors_of(expected), tree.tensors_of(spec), strict=True):
        if theirs_layout["bytes"] > SPARSEST * ours_layout["bytes"] + SPARE_BYTES:
            raise Rejected("numeric.shape", "an output is spread over far more memory than its elements need")
        if _overlaps(theirs_layout) and not _overlaps(ours_layout):
            raise Rejected(
                "numeric.shape",
                "an output is a view whose elements share memory, the reference's is not: write all its elements",
            )


def check_scalars(spec: tree.Spec, *, expected: tree.Spec) -> None:
    """Values that are no tensors, of equal structures."""
    for value, other_value in zip(tree.scalars_of(expected), tree.scalars_of(spec), strict=True):
        if not _same_scalar(value, other_value):
            raise Rejected("numeric.mismatch", f"a returned {value[0]} value differs from the reference's")


def _overlaps(layout: tree.Spec) -> bool:
    """Whether elements share memory, as those of an expanded tensor do (or may, where strides are interleaved)."""
    reach = 0
    for stride, size in sorted(zip(layout["stride"], layout["shape"], strict=True)):
        if size > 1:
            if stride <= reach:
                return True
            reach += stride * (size - 1)
    return False


def _same_scalar(mine: tuple[str, Any], other: tuple[str, Any]) -> bool:
    if mine[0] == "float" and isinstance(other[1], str):
        want = float.fromhex(mine[1])
        try:
            got = float.fromhex(other[1])
        except (ValueError, OverflowError):
            return False
        return got == want or (got != got and want != want) or abs(got - want) <= 1e-6 * abs(want)
    return mine == other


def _outline(outline: Any) -> str:
    if outline[0] == "tensor":
        return f"{outline[1]}{list(outline[2])}"
    if outline[0] == "sequence":
        return "(" + ", ".join(_outline(item) for item in outline[1:]) + ")"
    if outline[0] == "dict":
        return "{" + ", ".join(f"{key}: {_outline(item)}" for key, item in outline[1:]) + "}"
    return str(outline[0])


def find_mismatch(
    outputs: list[torch.Tensor],
    *,
    truth: list[torch.Tensor],
    reference: list[torch.Tensor],
    tolerances: list[Tolerance],
    noisy: Sequence[Leaves] = (),
    loud: Sequence[Leaves] = (),
    suspicious: bool = False,
) -> Mismatch | None:
    """The first output tensor that is further from the truth than its tolerance. `noisy` are outputs of noisy inputs
    (`loud`: of more noise): without them an output that cancels, or integers in another order, may look wrong. So may
    parts of an output where the reference itself is all that is known of the truth: those of values are compared only
    if `suspicious`.
    """
    for at, (output, want, other, tolerance) in enumerate(zip(outputs, truth, reference, tolerances, strict=True)):
        rough = [leaves[at] for leaves in noisy]
        rounded = [other, *rough] if rough or other is not want else []
        if tolerance.counts_few:
            draws = [*rounded, *(leaves[at] for leaves in loud)]
            if detail := tolerance.astray(output, want.to(other.dtype), draws):
                return Mismatch(leaf=at, error=Error(1.0, 1.0, detail), tolerance=tolerance)
            continue
        sizes = tolerance.sizes(want, rounded)
        error = numerics.measure(output, truth=want, reference=other, sizes=sizes)
        if not tolerance.allows(error):
            return Mismatch(leaf=at, error=error, tolerance=tolerance)
        if other is want and not suspicious and are_values(output.dtype):
            continue  # nothing to measure parts by
        detail = parts.neglected(
            output,
            truth=want,
            reference=other,
            lenient=tolerance.lenient,
            noisy=rough[0] if rough else None,
            share=tolerance.flips,
        )
        if detail:
            return Mismatch(leaf=at, error=Error(error.largest, error.rms, detail), tolerance=tolerance)
    return None

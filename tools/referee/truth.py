"""What a batch's outputs should be: the reference in its declared precision, in float64, and the controls that must
not pass for it.
"""

from dataclasses import dataclass
from typing import Any, Final

import torch

from referee import numerics, parts, tree
from referee.arena import Arena
from referee.launch import Worker
from referee.numerics import Error, Tolerance

Leaves = list[torch.Tensor]
# Mantissa bits of what each precision allows, and of the next lower precision, which must be told apart from it.
ALLOWED_BITS: Final = {"strict": None, "tf32": 10, "bf16": 7}
LOWER_BITS: Final = {"strict": 10, "tf32": 7, "bf16": None}
ROWS: Final = ("rows_left_out", "other_rows_left_out")  # what one of them changes may be small by chance
BRANCH: Final = "branch_left_out"
ROUNDED: Final = ("noise", "allowed")  # what is not the reference and right


@dataclass(frozen=True)
class Truth:
    """Per item: the reference's outputs, the truth, and the outputs of other variants (None where one cannot be
    computed).
    """

    specs: list[tree.Spec]
    reference: list[Leaves]
    truth: list[Leaves]
    variants: dict[str, list[Leaves | None]]
    notes: list[dict[str, Any]]
    wide: bool

    def teach(self, tolerances: list[Tolerance], *, inputs: int) -> None:
        """Let the tolerances take in outputs of `inputs` elements and the reference's own errors."""
        for truths in self.truth:
            for tolerance, leaf in zip(tolerances, truths, strict=True):
                tolerance.see(leaf, inputs=inputs)
        for name in ROUNDED:
            for item, outputs in enumerate(self.variants.get(name, [])):
                self._compare_parts(tolerances, item, outputs or [])
        for tolerance, errors in zip(tolerances, self._errors(tolerances), strict=True):
            for error in errors:
                tolerance.learn(error)

    def _compare_parts(self, tolerances: list[Tolerance], item: int, outputs: Leaves) -> None:
        for output, want, reference, tolerance in zip(
            outputs, self.truth[item], self.reference[item], tolerances, strict=False
        ):
            if reference is not want:
                found = parts.leniency(output, truth=want, reference=reference)
                tolerance.lenient = max(tolerance.lenient, found)

    def _errors(self, tolerances: list[Tolerance]) -> list[list[Error]]:
        """For every output tensor what the reference itself gets wrong, over items and allowed variants."""
        found: list[list[Error]] = [[] for _ in tree.tensors_of(self.specs[0])]
        for item, truths in enumerate(self.truth):
            candidates: list[Leaves | None] = [self.reference[item]]
            candidates += [leaves[item] for name, leaves in self.variants.items() if name in ROUNDED]
            for outputs in candidates:
                for at, output in enumerate(outputs or []):
                    exact = not (output.dtype.is_floating_point or output.dtype.is_complex)
                    # An integer is wrong only where it differs from both; here the two are compared with each other.
                    other = truths[at].to(output.dtype) if exact else self.reference[item][at]
                    scale = tolerances[at].scale
                    found[at].append(numerics.measure(output, truth=truths[at], reference=other, scale=scale))
        return found

    def tolerances(self) -> list[Tolerance]:
        leaves = self.reference[0]
        return [Tolerance(dtype=leaf.dtype, numel=leaf.numel()) for leaf in leaves]


def fetch(oracle: Worker, *, items: list[int], precision: str, extra: list[str], timeout_s: float) -> Truth:
    """Ask the reference worker; `extra` names further variants, for the first item only where outputs are large."""
    main = _ask(oracle, ["float32", "float64"], items, timeout_s)
    specs = [spec for spec in main.fields["found"]["float32"] if spec is not None]
    arena = Arena.received(oracle, main)
    cursor = iter(range(len(main.fields["offsets"])))
    reference = [_take(arena, spec, cursor) for spec in main.fields["found"]["float32"]]
    widened = [None if spec is None else _take(arena, spec, cursor) for spec in main.fields["found"]["float64"]]
    truth = [_best(ref, wide) for ref, wide in zip(reference, widened, strict=True)]
    names = ["noise", *extra]
    if ALLOWED_BITS[precision] is not None:
        names.append(f"bits{ALLOWED_BITS[precision]}")
    few = all(leaf.numel() < numerics.FEW for leaf in reference[0])
    if extra and "again" not in extra:  # controls are wanted
        names += left_out(reference[0])
    asked = items if few else items[:1]
    side = _ask(oracle, names, asked, timeout_s)
    arena = Arena.received(oracle, side)
    cursor = iter(range(len(side.fields["offsets"])))
    variants: dict[str, list[Leaves | None]] = {}
    for name in names:
        found = [None if spec is None else _take(arena, spec, cursor) for spec in side.fields["found"][name]]
        label = "allowed" if name == f"bits{ALLOWED_BITS[precision]}" else name
        variants[label] = [*found, *([None] * (len(items) - len(found)))]
    return Truth(
        specs=specs,
        reference=reference,
        truth=truth,
        variants=variants,
        notes=main.fields["notes"],
        wide=None not in widened,
    )


def left_out(outputs: Leaves) -> list[str]:
    """Variants that leave something out. Rows: only where an output is one of few sums, or so coarse that rounding may
    hide them; elsewhere they show in whole rows of the output, and a run of the reference is saved.
    """
    hides = any(leaf.numel() < numerics.FEW or leaf.dtype in numerics.HALVES for leaf in outputs)
    return [*ROWS, BRANCH] if hides else [BRANCH]


def _ask(oracle: Worker, variants: list[str], items: list[int], timeout_s: float) -> Any:
    return oracle.call("expected", variants=variants, items=items, timeout_s=timeout_s)


def _take(arena: Arena, spec: tree.Spec, cursor: Any) -> Leaves:
    return [arena.tensor(next(cursor), layout=layout) for layout in tree.tensors_of(spec)]


def _best(reference: Leaves, wide: Leaves | None) -> Leaves:
    """The float64 result where it has the reference's shape; otherwise the reference is all that is known."""
    if wide is None or [leaf.shape for leaf in wide] != [leaf.shape for leaf in reference]:
        return reference
    return wide

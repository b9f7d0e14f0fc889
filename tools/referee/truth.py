"""What a batch's outputs should be: the reference in its declared precision, in float64, and the controls that must
not pass for it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from referee import compare, numerics, parts, sizes, tree
from referee.arena import Arena
from referee.launch import Worker
from referee.numerics import Tolerance

Leaves = list[torch.Tensor]
# Mantissa bits of what each precision allows, and of the next lower precision, which must be told apart from it.
ALLOWED_BITS: Final = {"strict": None, "tf32": 10, "bf16": 7}
LOWER_BITS: Final = {"strict": 10, "tf32": 7, "bf16": None}
ROWS: Final = ("rows_left_out", "other_rows_left_out")  # what one of them changes may be small by chance
BRANCH: Final = "branch_left_out"
NOISE: Final = ("noise", "noise2", "noise3", "noise4")
"""Half a unit in the last place of inputs, from the second on of weights as well; for outputs of few elements, where
one draw says little, all of them.
"""
LOUD: Final = tuple(f"noise_loud{number}" for number in range(8))  # where an output is few integers (integers.py)
IN_DOUBLE: Final = 2.0**-20
"""Of what noise in single precision does to a value that is computed in double: honest kernels err by 2**-29 of it."""
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

    def noisy(self, item: int) -> list[Leaves]:
        """Outputs of noisy inputs, as far as they were asked for."""
        return self._of(NOISE, item)

    def _of(self, names: Sequence[str], item: int) -> list[Leaves]:
        found = [self.variants[name][item] for name in names if name in self.variants]
        return [leaves for leaves in found if leaves is not None]

    def rounded(self, item: int, leaf: int) -> Leaves:
        """One output tensor as the reference and noisy inputs make it."""
        return [leaves[leaf] for leaves in (self.reference[item], *self.noisy(item))]

    def mismatch(
        self, outputs: Leaves, item: int, tolerances: list[Tolerance], more: Sequence[Leaves] = ()
    ) -> compare.Mismatch | None:
        """Whether and where `outputs` are not allowed for this item; `more` are further draws of noise."""
        return compare.find_mismatch(
            outputs,
            truth=self.truth[item],
            reference=self.reference[item],
            tolerances=tolerances,
            noisy=self.noisy(item),
            loud=[*self._of((*LOUD, "allowed"), item), *more],
        )

    def teach(self, tolerances: list[Tolerance], *, inputs: int) -> None:
        """Let the tolerances take in outputs of `inputs` elements and the reference's own errors."""
        for truths in self.truth:
            for tolerance, leaf in zip(tolerances, truths, strict=True):
                tolerance.see(leaf, inputs=inputs)
        for name in ROUNDED:
            for item, outputs in enumerate(self.variants.get(name, [])):
                self._compare_parts(tolerances, item, outputs or [], by_noise=name == "noise")
        for item, truths in enumerate(self.truth):
            for name, outputs in self._right(item):
                for at, output in enumerate(outputs):
                    share = IN_DOUBLE if name in NOISE and self._is_in_double(item, at) else 1.0
                    _learn(
                        tolerances[at], output, truths[at], self.rounded(item, at), by_noise=name in NOISE, share=share
                    )

    def _is_in_double(self, item: int, leaf: int) -> bool:
        """Whether a value is computed in double precision from single or half: the truth is what the reference says."""
        reference, truth = self.reference[item][leaf], self.truth[item][leaf]
        if reference.dtype not in numerics.DOUBLES or self.notes[item]["double_inputs"]:
            return False
        return bool(torch.equal(reference, truth))

    def _compare_parts(self, tolerances: list[Tolerance], item: int, outputs: Leaves, *, by_noise: bool) -> None:
        for output, want, reference, tolerance in zip(
            outputs, self.truth[item], self.reference[item], tolerances, strict=False
        ):
            if reference is not want and not (by_noise and _counts(output)):
                found = parts.leniency(output, truth=want, reference=reference)
                tolerance.lenient = max(tolerance.lenient, found)

    def _right(self, item: int) -> Iterator[tuple[str, Leaves]]:
        """The reference's outputs and those of variants that are right."""
        yield "reference", self.reference[item]
        for name in (*NOISE, "allowed"):
            yield name, (self.variants[name][item] if name in self.variants else None) or []

    def tolerances(self) -> list[Tolerance]:
        leaves = self.reference[0]
        return [Tolerance(dtype=leaf.dtype, numel=leaf.numel()) for leaf in leaves]


def _counts(output: torch.Tensor) -> bool:
    return not sizes.are_values(output.dtype)


def _learn(
    tolerance: Tolerance, output: torch.Tensor, truth: torch.Tensor, rounded: Leaves, *, by_noise: bool, share: float
) -> None:
    """What rounding does to one output tensor; of its error `share` counts."""
    if tolerance.counts_few:
        return  # every call has its own
    # An integer is wrong only where it differs from both; here the two are compared with each other.
    other = truth.to(output.dtype) if _counts(output) else rounded[0]
    error = numerics.measure(output, truth=truth, reference=other, sizes=tolerance.sizes(truth, rounded))
    if by_noise and _counts(output):
        tolerance.shake(error.rms)
    else:
        tolerance.learn(numerics.Error(error.largest * share, error.rms * share))


def fetch(oracle: Worker, *, items: list[int], precision: str, extra: list[str], timeout_s: float) -> Truth:
    """Ask the reference worker; `extra` names further variants, for the first item only unless `varied`."""
    main = _ask(oracle, ["float32", "float64"], items, timeout_s)
    specs = [spec for spec in main.fields["found"]["float32"] if spec is not None]
    arena = Arena.received(oracle, main)
    cursor = iter(range(len(main.fields["offsets"])))
    reference = [_take(arena, spec, cursor) for spec in main.fields["found"]["float32"]]
    widened = [None if spec is None else _take(arena, spec, cursor) for spec in main.fields["found"]["float64"]]
    truth = [_best(ref, wide) for ref, wide in zip(reference, widened, strict=True)]
    names = [*noises(reference[0]), *extra]
    if ALLOWED_BITS[precision] is not None:
        names.append(f"bits{ALLOWED_BITS[precision]}")
    if extra and "again" not in extra:  # controls are wanted
        names += left_out(reference[0])
    asked = items if varied(reference[0]) else items[:1]
    variants: dict[str, list[Leaves | None]] = {}
    for name, found in _variants(oracle, names, asked, timeout_s).items():
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


def more_draws(oracle: Worker, index: int, *, timeout_s: float) -> list[Leaves]:
    """Outputs of the oracle's item `index` under noise that was not drawn before."""
    found = _variants(oracle, [*NOISE, *LOUD], [index], timeout_s, fresh=True)
    return [leaves for variant in found.values() for leaves in variant if leaves is not None]


def unlike(specs: list[tree.Spec]) -> str:
    """Why outputs of several inputs cannot be compared, empty where they can."""
    if any(tree.shape_of(spec) != tree.shape_of(specs[0]) for spec in specs):
        return "the output's shape depends on the values of the inputs"
    if any(tree.scalars_of(spec) != tree.scalars_of(specs[0]) for spec in specs):
        return "forward returns a Python number that depends on the values of the inputs: return a tensor"
    return ""


def noises(outputs: Leaves) -> tuple[str, ...]:
    """Variants with noise that outputs like these ask for."""
    few = [leaf for leaf in outputs if _is_few(leaf)]
    return (*NOISE, *LOUD) if any(map(_counts, few)) else NOISE if few else NOISE[:1]


def varied(outputs: Leaves) -> bool:
    """Whether variants are asked for every item, because rounding shows in another way in each."""
    return any(_is_few(leaf) or _counts(leaf) for leaf in outputs)


def _is_few(leaf: torch.Tensor) -> bool:
    return bool(leaf.numel() < sizes.FEW)


def left_out(outputs: Leaves) -> list[str]:
    """Variants that leave something out. Rows: only where an output is one of few sums, or so coarse that rounding may
    hide them; elsewhere they show in whole rows of the output, and a run of the reference is saved.
    """
    hides = any(_is_few(leaf) or leaf.dtype in numerics.HALVES for leaf in outputs)
    return [*ROWS, BRANCH] if hides else [BRANCH]


def _variants(
    oracle: Worker, names: list[str], items: list[int], timeout_s: float, *, fresh: bool = False
) -> dict[str, list[Leaves | None]]:
    """By name, for each item; `fresh`: with other noise in weights than before."""
    reply = _ask(oracle, names, items, timeout_s, fresh=fresh)
    arena = Arena.received(oracle, reply)
    cursor = iter(range(len(reply.fields["offsets"])))
    found = reply.fields["found"]
    return {name: [None if spec is None else _take(arena, spec, cursor) for spec in found[name]] for name in names}


def _ask(oracle: Worker, variants: list[str], items: list[int], timeout_s: float, *, fresh: bool = False) -> Any:
    return oracle.call("expected", variants=variants, items=items, fresh=fresh, timeout_s=timeout_s)


def _take(arena: Arena, spec: tree.Spec, cursor: Any) -> Leaves:
    return [arena.tensor(next(cursor), layout=layout) for layout in tree.tensors_of(spec)]


def _best(reference: Leaves, wide: Leaves | None) -> Leaves:
    """The float64 result where it has the reference's shape; otherwise the reference is all that is known."""
    if wide is None or [leaf.shape for leaf in wide] != [leaf.shape for leaf in reference]:
        return reference
    return wide

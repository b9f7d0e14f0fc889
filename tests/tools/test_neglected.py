"""What an error of the whole does not show: small elements anywhere, integers that rounding did not move, rows of long
sums and tiny branches.
"""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from referee import binades, compare, flips, numerics, oracle, parts, slices, truth
from referee.controls import Controls
from referee.numerics import Error, Tolerance
from referee.truth import Truth

AT = torch.arange(512)
BAND = 0.9 ** (AT[:, None] - AT[None, :]).abs().double()


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=seeded(seed), dtype=torch.float64)


def mismatch(output: torch.Tensor, want: torch.Tensor, reference: torch.Tensor, tolerance: Tolerance) -> str:
    found = compare.find_mismatch([output], truth=[want], reference=[reference], tolerances=[tolerance])
    return found.told() if found else ""


def test_what_is_far_from_a_diagonal_must_be_there() -> None:
    want = normal(512, 512) * BAND
    honest = (want * (1 + 1e-5 * normal(512, 512, seed=1))).float()
    gone = torch.where(BAND > 1e-9, want.float(), 0.0)
    tolerance = Tolerance(dtype=torch.float32, numel=want.numel())
    tolerance.learn(numerics.measure(want.float(), truth=want, reference=want.float()))
    assert numerics.measure(gone, truth=want, reference=want.float()).rms < tolerance.rms  # the whole shows nothing
    assert binades.neglected(honest, truth=want, reference=want.float()) == ""
    assert "their own size" in mismatch(gone, want, want.float(), tolerance)


def test_small_elements_that_cancel_are_measured_by_the_reference() -> None:
    want = normal(256, 256)
    want[:, ::2] *= 1e-9
    reference, other = ((want + 1e-7 * normal(256, 256, seed=seed)).float() for seed in (1, 2))
    assert binades.neglected(other, truth=want, reference=reference) == ""
    assert binades.neglected(want.float(), truth=want, reference=reference) == ""


def test_zeros_odd_values_far_tails_and_small_outputs_are_no_matter() -> None:
    want = torch.sigmoid(3 * normal(256, 256))
    tail = (want + 3e-8).float()  # sigmoid as tanh: exact in the absolute only
    assert binades.neglected(tail, truth=want, reference=want.float()) == ""
    want[:100], want[100, 3], want[101, 4] = 0.0, float("nan"), float("inf")
    assert binades.neglected(want.float(), truth=want, reference=want.float()) == ""
    small = normal(5, 5)
    assert binades.neglected(torch.zeros(5, 5), truth=small, reference=small.float()) == ""


@pytest.mark.parametrize(("dtype", "found"), [(torch.complex64, True), (torch.float64, True), (torch.bfloat16, False)])
def test_dtypes(dtype: torch.dtype, found: bool) -> None:
    want = (normal(512, 512) * BAND).to(torch.complex128 if dtype.is_complex else torch.float64)
    reference = want.to(dtype)
    gone = torch.where(BAND > 1e-9, reference, torch.zeros_like(reference))
    assert binades.neglected(reference, truth=want, reference=reference) == ""
    assert bool(binades.neglected(gone, truth=want, reference=reference)) == found


def test_a_declared_precision_is_no_part_left_out() -> None:
    left, right = normal(256, 256), normal(256, 256, seed=1)
    want = left @ right
    lower = [value.float().bfloat16().double() for value in (left, right)]
    output = (lower[0] @ lower[1]).float()
    assert slices.neglected(output, truth=want, reference=want.float())  # a thousandth of its size
    known = known_of(want, variants={"allowed": [[output]]})
    [tolerance] = tolerances = known.tolerances()
    known.teach(tolerances, inputs=1)
    assert tolerance.lenient > 1
    assert mismatch(output.flip(0), want.flip(0), want.flip(0).float(), tolerance) == ""


def test_near_poles_the_reference_is_no_measure() -> None:
    x = 3 * normal(512, 512).float()
    want, moved = torch.tan(x.double()), torch.tan(x * (1 + 1e-7))
    assert parts.neglected(moved, truth=want, reference=want.float())
    known = known_of(want, variants={"noise": [[torch.tan(x * (1 - 1e-7))]]})
    [tolerance] = tolerances = known.tolerances()
    known.teach(tolerances, inputs=1)
    assert tolerance.lenient > 1
    assert parts.neglected(moved, truth=want, reference=want.float(), lenient=tolerance.lenient) == ""
    gone = torch.zeros_like(moved)
    assert parts.neglected(gone, truth=want, reference=want.float(), lenient=tolerance.lenient)


def test_rounded_inputs_leave_the_reference_a_measure_where_values_decay() -> None:
    want = normal(512, 512) * BAND
    known = known_of(want, variants={"noise": [[(want * (1 + 1e-7 * normal(512, 512, seed=3))).float()]]})
    [tolerance] = tolerances = known.tolerances()
    known.teach(tolerances, inputs=1)
    assert tolerance.lenient == 1


def buckets(share: float = 0.02) -> tuple[torch.Tensor, torch.Tensor]:
    """Exact values, and the reference's, which rounding has moved by one in some places."""
    exact = torch.randint(0, 256, (512, 512), generator=seeded(0))
    return exact, torch.where(torch.rand(512, 512, generator=seeded(1)) < share, exact + 1, exact)


def test_integers_that_rounding_moves_more_often_and_further_are_allowed() -> None:
    exact, reference = buckets()
    moved = torch.rand(512, 512, generator=seeded(2)) < 0.1
    assert flips.unlike_rounding(torch.where(moved, exact - 4, exact), truth=exact, reference=reference) == ""
    assert flips.unlike_rounding(reference, truth=exact, reference=reference) == ""


def test_integers_left_out_are_found_where_they_lie_together_and_where_they_do_not() -> None:
    exact, reference = buckets()
    corner, scattered = reference.clone(), reference.clone()
    corner[:128, :240] += 3  # half of a quarter of the rows: no row and no column is wrong altogether
    scattered[:, ::16] = 0
    assert "stretches" in flips.unlike_rounding(corner, truth=exact, reference=reference)
    assert "further than" in flips.unlike_rounding(scattered, truth=exact, reference=reference)


def test_where_half_precision_hides_some_rows_it_hides_no_more() -> None:
    epsilon = torch.finfo(torch.bfloat16).eps
    tolerance = Tolerance(dtype=torch.bfloat16, numel=256, reference=Error(0.24 * epsilon, 0.09 * epsilon))
    assert tolerance.rms == 2 * epsilon
    tolerance.miss("rows_left_out", Error(epsilon, 0.17 * epsilon))
    assert tolerance.rms == 0.25 * epsilon
    wide = Tolerance(dtype=torch.float32, numel=256)
    allowed = wide.rms
    wide.miss("rows_left_out", Error(0.0, 0.0))
    assert wide.rms == allowed


def test_half_of_few_integers_cannot_be_far_off() -> None:
    exact = torch.full((64,), 196_608)
    noisy, guessed, rounded = exact.clone(), exact.clone(), exact.clone()
    noisy[::3] += 1
    guessed[1::2] += 200
    rounded[:8] += 200
    assert "further than" in flips.unlike_rounding(guessed, truth=exact, reference=exact, noisy=noisy)
    assert flips.unlike_rounding(rounded, truth=exact, reference=exact, noisy=noisy) == ""


def test_noise_of_single_precision_excuses_nothing_in_double() -> None:
    exact = torch.rand(256, 4, generator=seeded(0), dtype=torch.float64)
    noise = exact * (1 + 2**-24 * normal(256, 4, seed=1).double())
    for double_inputs, allowed in ((False, False), (True, True)):
        known = Truth(
            specs=[],
            reference=[[exact]],
            truth=[[exact]],
            variants={"noise": [[noise]]},
            notes=[{"double_inputs": double_inputs}],
            wide=True,
        )
        tolerance = Tolerance(dtype=torch.float64, numel=exact.numel())
        known.teach([tolerance], inputs=exact.numel())
        assert tolerance.allows(numerics.measure(exact.float().double(), truth=exact, reference=exact)) is allowed
        assert tolerance.allows(numerics.measure(exact * (1 + 1e-13), truth=exact, reference=exact))


def test_integers_that_are_rough_in_some_places_may_be_so_in_the_output() -> None:
    exact, _ = buckets()
    reference, output = exact.clone(), exact.clone()
    reference[:10, :64] += 1
    output[:10, :256] += 1
    assert flips.unlike_rounding(output, truth=exact, reference=reference) == ""


def test_indices_of_ties_may_be_any_number() -> None:
    exact = torch.randint(0, 1000, (40_000,), generator=seeded(0))
    reference, output = exact.clone(), exact.clone()
    reference[::50] = torch.randint(0, 1000, (800,), generator=seeded(1))
    output[7::20] = torch.randint(0, 1000, (2000,), generator=seeded(2))
    assert flips.unlike_rounding(output, truth=exact, reference=reference) == ""


def sorted_scores(*, tied: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Order of scores, and what noise in the scores makes of it."""
    scores = torch.rand(1 << 18, generator=seeded(0)) + 1
    if tied:
        scores = (scores * tied).round() / tied
    return torch.argsort(scores, stable=True), torch.argsort(oracle._noisy(scores), stable=True)


def test_noise_is_no_licence_to_leave_integers_out_in_one_place() -> None:
    exact, noisy = sorted_scores()
    share = float((noisy != exact).double().mean())
    assert 0.001 < share < 0.1
    tail = exact.clone()
    tail[-(1 << 15) :] = 0
    assert parts.neglected(tail, truth=exact, reference=exact, noisy=noisy, share=share / 2)
    assert parts.neglected(noisy, truth=exact, reference=exact, noisy=noisy, share=share / 2) == ""


def test_equal_values_may_stand_in_any_order() -> None:
    exact, noisy = sorted_scores(tied=1000)
    scores = (torch.rand(1 << 18, generator=seeded(0)) + 1).mul(1000).round() / 1000
    other = (1 << 18) - 1 - torch.argsort(scores.flip(0), stable=True)
    assert float((other != exact).double().mean()) > 0.9
    share = float((noisy != exact).double().mean())
    assert parts.neglected(other, truth=exact, reference=exact, noisy=noisy, share=share / 2) == ""


def test_values_that_noise_moves_by_one_may_not_be_far_off() -> None:
    x = normal(512, 512).float()
    exact = (x.double() * 2**22).round().int()
    noisy = (oracle._noisy(x) * 2**22).round().int()
    share = float((noisy != exact).double().mean())
    gone = torch.where(torch.rand(512, 512, generator=seeded(4)) < 0.3, 0, exact)
    assert "further than" in parts.neglected(gone, truth=exact, reference=exact, noisy=noisy, share=share / 2)
    assert parts.neglected(noisy, truth=exact, reference=exact, noisy=noisy, share=share / 2) == ""


def test_values_that_cancel_are_no_cover_for_others_of_their_size() -> None:
    want = 1e-6 * (1 + normal(512, 512).abs())
    reference = want.float()
    reference[:8] = 0  # as wrong as they are large, in the same powers of two
    gone = torch.where(normal(512, 512, seed=1) > 0, reference, torch.zeros_like(reference))
    assert binades.neglected(gone, truth=want, reference=reference)
    assert binades.neglected(reference, truth=want, reference=reference) == ""


def known_of(*items: torch.Tensor, variants: dict[str, list[list[torch.Tensor]]]) -> Truth:
    filled = {name: [*found, *[None] * (len(items) - len(found))] for name, found in variants.items()}
    return Truth(
        specs=[{"k": "tensor", "dtype": "float32", "shape": [], "stride": [], "bytes": 4}],
        reference=[[item.float()] for item in items],
        truth=[[item.double()] for item in items],
        variants=filled,
        notes=[],
        wide=True,
    )


def long_sum(*, inputs: int, left_out: float) -> Tolerance:
    """Of a mean near one, and an eighth of its rows replaced."""
    tolerance = Tolerance(dtype=torch.float32, numel=1, reference=Error(1e-8, 1e-8))
    tolerance.see(torch.tensor(1.0, dtype=torch.float64), inputs=inputs)
    if left_out:
        tolerance.miss("rows_left_out", Error(left_out, left_out))
    return tolerance


def test_a_long_sum_is_allowed_less_than_leaving_rows_out_takes() -> None:
    ulp = torch.finfo(torch.float32).eps
    assert long_sum(inputs=1 << 23, left_out=0).rms == pytest.approx(362 * ulp, rel=0.01)
    assert long_sum(inputs=1 << 23, left_out=700 * ulp).rms == pytest.approx(
        362 * ulp, rel=0.01
    )  # values of both signs
    assert long_sum(inputs=1 << 23, left_out=400 * ulp).rms == pytest.approx(320 * ulp)
    assert long_sum(inputs=1 << 23, left_out=200 * ulp).rms == pytest.approx(256 * ulp)  # what plain sums need
    assert long_sum(inputs=1 << 23, left_out=50 * ulp).rms == pytest.approx(75 * ulp)
    assert long_sum(inputs=1 << 23, left_out=1 * ulp).rms == pytest.approx(362 * ulp, rel=0.01)  # nothing is lost


def test_beyond_a_length_the_allowed_error_falls_like_the_error_of_an_estimate() -> None:
    most = long_sum(inputs=numerics.LONGEST, left_out=0).rms
    assert long_sum(inputs=4 * numerics.LONGEST, left_out=0).rms == pytest.approx(most / 2)
    assert long_sum(inputs=numerics.LONGEST // 4, left_out=0).rms == pytest.approx(most / 2)


def test_rows_that_are_replaced_are_the_same_in_inputs_of_one_length() -> None:
    rows, columns, labels = torch.arange(64.0)[:, None].expand(64, 4).clone(), torch.zeros(3), torch.arange(64)
    new_rows, same, new_labels = oracle._replaced([rows.clone(), columns, labels.clone()])
    assert torch.equal(same, torch.zeros(3))
    assert int((new_labels != labels).sum()) == 8
    assert torch.equal(new_rows[:, 0].long(), new_labels)


class Scaled(nn.Module):
    def __init__(self, size: float) -> None:
        super().__init__()
        self.size = nn.Parameter(torch.full((16,), size))
        self.weight = nn.Parameter(torch.randn(16, 16, generator=seeded(0)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.size * torch.tanh(x @ self.weight)


def test_a_branch_with_tiny_weights_must_be_there() -> None:
    x, model = normal(256, 16).float(), Scaled(1e-6)
    without = oracle._without_small(model)
    assert without is not None and oracle._without_small(Scaled(0.1)) is None
    assert torch.equal(without(x), x) and not torch.equal(model(x), x)
    want = model.double()(x.double()).detach()
    known = known_of(want, -want, variants={truth.BRANCH: [[x]]})
    [tolerance] = tolerances = known.tolerances()
    known.teach(tolerances, inputs=x.numel())
    assert tolerance.allows(numerics.measure(x, truth=want, reference=want.float()))
    controls = Controls(precision="strict")
    controls.collect(known, tolerances, weighted=False)
    controls.decide()
    assert truth.BRANCH in controls.rejected and not controls.indistinct
    assert not tolerance.allows(numerics.measure(x, truth=want, reference=want.float()))
    other = (want * (1 + 2e-7 * normal(256, 16, seed=5))).float()
    assert mismatch(other, want, want.float(), tolerance) == ""


def test_what_was_left_out_without_effect_is_told_and_refuses_nothing() -> None:
    want = torch.tensor([3.0], dtype=torch.float64)
    known = known_of(want, want + 1, variants={truth.ROWS[0]: [[(want * (1 + 3e-7)).float()]]})
    tolerances = known.tolerances()
    known.teach(tolerances, inputs=1 << 20)
    controls = Controls(precision="strict")
    controls.collect(known, tolerances, weighted=False)
    controls.decide()
    assert controls.indistinct == [truth.ROWS[0]]


def test_rows_are_left_out_only_where_that_may_not_show() -> None:
    assert truth.left_out([torch.zeros(100, 100)]) == [truth.BRANCH]
    assert truth.left_out([torch.zeros(100, 100), torch.zeros(())]) == [*truth.ROWS, truth.BRANCH]
    assert truth.left_out([torch.zeros(100, 100, dtype=torch.bfloat16)]) == [*truth.ROWS, truth.BRANCH]

"""The metric and the tolerance: what passes for a right output and what does not."""

import math

import pytest
import torch
from referee import numerics, oracle
from referee import truth as truth_of_a_call
from referee.numerics import Error, Tolerance

pytestmark = pytest.mark.torch


def error_of(output, truth, reference=None):
    return numerics.measure(output, truth=truth, reference=truth if reference is None else reference)


def learned(reference, truth):
    tolerance = Tolerance(dtype=reference.dtype, numel=reference.numel())
    tolerance.learn(error_of(reference, truth, reference))
    return tolerance


@pytest.fixture
def product():
    torch.manual_seed(0)
    a, b = torch.rand(96, 512), torch.rand(512, 80)
    return a, b, a @ b, a.double() @ b.double()


def test_the_blocks_give_what_the_formula_says():
    torch.manual_seed(1)
    truth = torch.randn(300, 257, dtype=torch.float64)
    output = (truth + 1e-5 * torch.randn(300, 257)).float()
    row = truth.square().mean(dim=1, keepdim=True).sqrt()
    relative = (output.double() - truth).abs() / (truth.abs() + row + truth.square().mean().sqrt() / 100)
    found = error_of(output, truth)
    assert found.largest == pytest.approx(float(relative.max()), rel=1e-9)
    assert found.rms == pytest.approx(float(relative.square().mean().sqrt()), rel=1e-9)


def test_the_reference_and_more_accurate_outputs_pass(product):
    _, _, reference, truth = product
    tolerance = learned(reference, truth)
    assert tolerance.allows(error_of(reference, truth))
    assert tolerance.allows(error_of(truth.float(), truth))


def test_a_plain_sequential_sum_passes_and_the_next_lower_precisions_do_not(product):
    a, b, reference, truth = product
    tolerance = learned(reference, truth)
    sequential = torch.zeros_like(reference)
    for k in range(a.shape[1]):
        sequential += a[:, k : k + 1] * b[k]
    assert tolerance.allows(error_of(sequential, truth))
    for dtype in (torch.bfloat16, torch.float16):
        low = (a.to(dtype).double() @ b.to(dtype).double()).float()
        assert not tolerance.allows(error_of(low, truth))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_zeros_and_constants_never_pass_whatever_the_scale(scale):
    truth = torch.softmax(torch.randn(8, 4096, dtype=torch.float64), dim=-1) * scale
    tolerance = learned(truth.float(), truth)
    assert not tolerance.allows(error_of(torch.zeros(8, 4096), truth))
    assert not tolerance.allows(error_of(torch.full((8, 4096), float(truth.mean())), truth))


def test_one_wrong_element_among_a_million_is_found():
    truth = torch.randn(1000, 1000, dtype=torch.float64)
    output = truth.float()
    tolerance = learned(output.clone(), truth)
    output[731, 17] += 0.01
    assert not tolerance.allows(error_of(output, truth))


def test_nan_and_infinities_must_lie_where_the_reference_has_them():
    truth = torch.tensor([[1.0, float("nan"), float("inf"), -float("inf")]], dtype=torch.float64)
    assert error_of(truth.float(), truth).largest == 0.0
    for place, value in ((0, float("nan")), (1, 1.0), (2, -float("inf")), (3, 0.0)):
        wrong = truth.float()
        wrong[0, place] = value
        assert math.isinf(error_of(wrong, truth).largest)


def test_where_float64_and_the_reference_disagree_about_infinity_both_are_right():
    truth = torch.tensor([70000.0, 1.0], dtype=torch.float64)
    reference = torch.tensor([float("inf"), 1.0], dtype=torch.float16)
    assert error_of(reference, truth, reference).largest < 0.01
    assert math.isinf(error_of(torch.tensor([float("nan"), 1.0], dtype=torch.float16), truth, reference).largest)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_integers_are_exact(dtype):
    truth = torch.randint(0, 2, (50, 7)).to(dtype)
    tolerance = learned(truth, truth)
    assert tolerance.allows(error_of(truth.clone(), truth))
    wrong = truth.clone()
    wrong[3, 3] = ~wrong[3, 3] if dtype is torch.bool else wrong[3, 3] + 1
    assert not tolerance.allows(error_of(wrong, truth))


def test_where_rounding_decides_integers_a_few_of_them_may_differ():
    reference = torch.zeros(10_000, dtype=torch.int64)
    other = reference.clone()
    other[:3] = 1
    tolerance = Tolerance(dtype=torch.int64, numel=10_000)
    tolerance.learn(error_of(other, reference))
    few, many = reference.clone(), reference.clone()
    few[-5:], many[-500:] = 1, 1
    assert tolerance.allows(error_of(few, reference))
    assert not tolerance.allows(error_of(many, reference))


def test_complex_and_zero_size_and_scalars():
    truth = torch.randn(4, 5, dtype=torch.complex128)
    tolerance = learned(truth.to(torch.complex64), truth)
    assert tolerance.allows(error_of(truth.to(torch.complex64), truth))
    assert not tolerance.allows(error_of(truth.conj().resolve_conj().to(torch.complex64), truth))
    assert error_of(torch.empty(0, 3), torch.empty(0, 3)) == Error(0.0, 0.0)
    assert error_of(torch.tensor(2.0), torch.tensor(1.0, dtype=torch.float64)).largest > 0.3


def test_a_sum_that_happens_to_be_near_zero_is_not_held_to_its_own_size():
    """Sixteen float32 sums, each term after the other, for means of values of both signs."""
    rows = [torch.randn(1 << 14, generator=torch.Generator().manual_seed(seed)) for seed in range(120)]
    tolerance = Tolerance(dtype=torch.float32, numel=1)
    known = [item(row, torch.mean) for row in rows]
    for truth, _ in known:
        tolerance.see(truth, inputs=1 << 14)
    for truth, rounded in known:
        tolerance.learn(
            numerics.measure(rounded[0], truth=truth, reference=rounded[0], sizes=tolerance.sizes(truth, rounded))
        )
    least = min(abs(float(truth)) for truth, _ in known)
    assert least < tolerance.scale / 50
    for row, (truth, rounded) in zip(rows, known, strict=True):
        sums = torch.zeros(16)
        for part in row.view(-1, 16):
            sums += part
        found = (sums.sum() / row.numel(), row.bfloat16().double().mean().float())
        honest, low = (
            numerics.measure(value, truth=truth, reference=rounded[0], sizes=tolerance.sizes(truth, rounded))
            for value in found
        )
        assert tolerance.allows(honest), (honest, tolerance.rms)
        assert not tolerance.allows(low) or abs(float(found[1] - truth)) < 1e-6


def test_a_small_output_that_does_not_cancel_is_held_to_its_own_size():
    """A loss that is a millionth of other calls' and is answered with zero, or with twice its value."""
    tolerance = Tolerance(dtype=torch.float32, numel=1)
    base = torch.rand(1 << 12, generator=torch.Generator().manual_seed(0)) + 0.5
    known = [item(base * scale, lambda x: x.square().mean()) for scale in (1.0, 1e-3)]
    for truth, rounded in known:
        tolerance.see(truth, inputs=1 << 12)
        tolerance.learn(
            numerics.measure(rounded[0], truth=truth, reference=rounded[0], sizes=tolerance.sizes(truth, rounded))
        )
    truth, rounded = known[1]
    sizes = tolerance.sizes(truth, rounded)
    for factor, right in ((1.0, True), (1 + 3e-7, True), (0.0, False), (2.0, False), (1.001, False)):
        value = (truth * factor).float()
        assert tolerance.allows(numerics.measure(value, truth=truth, reference=rounded[0], sizes=sizes)) == right


def test_elements_of_a_small_output_are_held_to_their_own_sizes():
    x = torch.randn(1 << 14, generator=torch.Generator().manual_seed(0))
    truth, rounded = item(x, lambda x: torch.stack([x.square().sum(), x.sigmoid().mean(), x.mean()]))
    tolerance = Tolerance(dtype=torch.float32, numel=3)
    tolerance.see(truth, inputs=x.numel())
    sizes = tolerance.sizes(truth, rounded)
    tolerance.learn(numerics.measure(rounded[0], truth=truth, reference=rounded[0], sizes=sizes))
    assert tolerance.allows(numerics.measure(rounded[1], truth=truth, reference=rounded[0], sizes=sizes))
    for at in range(3):
        wrong = rounded[0].clone()
        wrong[at] += 0.1 * truth[at].float()
        assert not tolerance.allows(numerics.measure(wrong, truth=truth, reference=rounded[0], sizes=sizes))


def item(x, function):
    """The truth of one call, and what rounding makes of it: the reference, and four draws of noisy inputs."""
    noisy = [oracle._noisy(x) for _ in truth_of_a_call.NOISE]
    return function(x.double()), [function(x), *(function(value) for value in noisy)]


def test_a_finite_value_where_the_reference_has_overflowed_must_be_near_the_truth():
    truth = torch.full((8, 64), 1e30, dtype=torch.float64)
    reference = truth.float()
    reference[:, 32:] = float("inf")
    tolerance = Tolerance(dtype=torch.float32, numel=512, reference=Error(1e-7, 1e-7))
    ones = reference.clone()
    ones[:, 32:] = 1.0
    for output, right in ((reference, True), (truth.float(), True), (ones, False)):
        assert tolerance.allows(numerics.measure(output, truth=truth, reference=reference)) == right


def test_integers_of_a_reference_without_rounding_errors_may_differ_as_noise_makes_them():
    reference = torch.zeros(1 << 16, dtype=torch.int64)
    tolerance = Tolerance(dtype=torch.int64, numel=1 << 16)
    tolerance.shake(0.02)
    assert tolerance.flips == pytest.approx(0.01)
    few, many = reference.clone(), reference.clone()
    few[::20], many[::10] = 1, 1
    assert tolerance.allows(error_of(few, reference))
    assert not tolerance.allows(error_of(many, reference))
    small = Tolerance(dtype=torch.int64, numel=100)
    small.shake(0.05)
    assert small.flips == pytest.approx(0.05)


def test_few_integers_may_be_as_far_off_as_rounding_moves_them():
    exact = torch.tensor(1000)
    tolerance = Tolerance(dtype=torch.int64, numel=1)
    moved = [torch.tensor(1000), torch.tensor(1010)]
    assert tolerance.astray(torch.tensor(1080), exact, moved) == ""
    assert "by 81" in tolerance.astray(torch.tensor(1081), exact, moved)
    flag = Tolerance(dtype=torch.bool, numel=1)
    assert flag.astray(torch.tensor(True), torch.tensor(False), [torch.tensor(False)])
    assert not flag.astray(torch.tensor(True), torch.tensor(False), [torch.tensor(True)])


def test_a_near_tie_among_few_integers_allows_none_of_the_others_to_be_wrong():
    """One of 32 indices has moved in this call, by a long way: the others must be right, and all of another call."""
    exact = torch.arange(0, 32_000, 1000)
    tolerance = Tolerance(dtype=torch.int64, numel=32)
    tied, other = exact.clone(), exact.clone()
    tied[3] += 90_000
    other[4] += 5
    assert tolerance.astray(tied, exact, [exact, tied]) == ""
    assert "1 of 32 int64" in tolerance.astray(other, exact, [exact, tied])
    assert "1 of 32 int64" in tolerance.astray(tied, exact, [exact])


def test_integers_that_double_precision_cannot_tell_apart_differ():
    exact = torch.tensor([1 << 60, 7])
    tolerance = Tolerance(dtype=torch.int64, numel=2)
    assert tolerance.astray(exact, exact, [exact]) == ""
    assert "1 of 2" in tolerance.astray(exact + torch.tensor([1, 0]), exact, [exact])

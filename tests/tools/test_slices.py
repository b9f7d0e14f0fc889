"""Parts of an output that are too small to count in the whole are found by their own size."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from referee.slices import neglected

DECAY = 0.9 ** torch.arange(512, dtype=torch.float64)[:, None]


def honest(truth: torch.Tensor) -> torch.Tensor:
    """Another order of summation: a few units in the last place beside the truth."""
    return (truth * (1 + 3e-7 * torch.randn(truth.shape))).float()


def told(output: torch.Tensor, truth: torch.Tensor) -> str:
    return neglected(output, truth=truth, reference=truth.float())


@pytest.mark.parametrize("turned", [False, True])
def test_small_rows_and_columns_must_be_there(turned: bool) -> None:
    truth = torch.randn(512, 64, dtype=torch.float64) * DECAY
    left_out = honest(truth)
    left_out[300:] = 0.0
    wrong = honest(truth)
    wrong[300:] *= 1.5
    for output, fine in ((honest(truth), True), (left_out, False), (wrong, False)):
        output, want = (output.T, truth.T) if turned else (output, truth)
        assert (told(output, want) == "") == fine


def test_the_end_of_a_vector_must_be_there() -> None:
    truth = torch.randn(4096, dtype=torch.float64) * 0.99 ** torch.arange(4096, dtype=torch.float64)
    output = honest(truth)
    assert told(output, truth) == ""
    output[2500:] = 0.0
    assert "slices" in told(output, truth)


def test_rows_that_cancel_are_measured_by_the_reference() -> None:
    truth = torch.randn(256, 64, dtype=torch.float64)
    truth[::2] = 1e-12 * torch.randn(128, 64, dtype=torch.float64)  # what is left of a difference
    noise = 1e-8 * torch.randn(256, 64)
    reference, output = truth.float() + noise, truth.float() + 3 * noise.flip(0)
    assert neglected(output, truth=truth, reference=reference) == ""


def test_rows_of_zeros_masks_and_few_odd_rows_are_no_matter() -> None:
    truth = torch.randn(256, 64, dtype=torch.float64)
    truth[:100] = 0.0
    truth[200] = float("inf")
    truth[201, 3] = float("nan")
    output = honest(truth)
    output[250] *= 1.00001
    assert told(output, truth) == ""


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_not_looked_at(dtype: torch.dtype) -> None:
    truth = torch.randn(512, 64, dtype=torch.float64) * DECAY
    assert neglected(truth.to(dtype), truth=truth, reference=truth.to(dtype)) == ""


def test_integers_may_differ_where_rounding_decides_but_not_all_in_one_place() -> None:
    exact = torch.randint(0, 256, (512, 256))
    reference = torch.where(torch.rand(512, 256) < 0.02, exact + 1, exact)
    scattered = torch.where(torch.rand(512, 256) < 0.1, exact - 1, exact)
    assert neglected(scattered, truth=exact, reference=reference) == ""
    scattered[480:] = 0
    assert "dimension 0" in neglected(scattered, truth=exact, reference=reference)


def test_complex_small_and_empty_outputs() -> None:
    truth = torch.randn(64, 64, dtype=torch.complex128) * DECAY[:64]
    output = truth.to(torch.complex64)
    assert neglected(output, truth=truth, reference=output) == ""
    output[20:] = 0
    assert neglected(output, truth=truth, reference=truth.to(torch.complex64))
    for shape in ((), (3,), (0, 5), (4, 4)):
        assert neglected(torch.zeros(shape), truth=torch.ones(shape).double(), reference=torch.ones(shape)) == ""

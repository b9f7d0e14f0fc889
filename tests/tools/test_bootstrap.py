"""The interval of paired ratios and the call that is decided on it."""

import random

import pytest
from referee import bootstrap


def ratios(centre: float, spread: float, count: int = 24) -> list[float]:
    generator = random.Random(5)
    return [centre * (1 + spread * (generator.random() - 0.5)) for _ in range(count)]


@pytest.mark.parametrize(
    ("centre", "spread", "call"), [(2.0, 0.1, "faster"), (0.5, 0.1, "slower"), (1.0, 0.1, "inconclusive")]
)
def test_the_call_follows_the_interval(centre, spread, call):
    found = bootstrap.interval(ratios(centre, spread))
    assert found.call == call
    assert found.low <= found.ratio <= found.high


def test_noise_that_spans_one_is_inconclusive_even_with_a_good_median():
    assert bootstrap.interval([0.6, 1.6, 0.7, 1.5, 1.2, 0.8, 1.4]).call == "inconclusive"


def test_one_outlier_flips_nothing():
    assert bootstrap.interval([*ratios(1.5, 0.02), 0.001]).call == "faster"


@pytest.mark.parametrize("bad", [[], [1.0, 0.0], [1.0, -2.0], [float("nan")], [float("inf"), 1.0]])
def test_impossible_ratios_are_refused(bad):
    with pytest.raises(ValueError, match="finite and positive"):
        bootstrap.interval(bad)

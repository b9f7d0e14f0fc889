"""From samples to intervals: quiet rounds, noise, reward."""

import pytest
from referee import report, stopping
from referee.samples import Sample, Times

pytestmark = pytest.mark.torch


def times(candidate, eager, compiled, waited=0.0):
    def side(values):
        return [Sample(us=us, reply_us=us, cpu_us=us, waited_share=waited) for us in values]

    return Times(calls=10, samples={"eager": side(eager), "compile": side(compiled), "submission": side(candidate)})


@pytest.mark.parametrize(
    ("eager", "compiled", "reward"), [(2.0, 1.5, 3), (2.0, 1.0, 2), (1.0, 2.0, 1), (1.04, 1.04, 1), (0.5, 0.5, 1)]
)
def test_the_reward_is_equation_one(eager, compiled, reward):
    found = times([100.0] * 8, [100.0 * eager] * 8, [100.0 * compiled] * 8)
    assert report.reward(found, how="interval") == reward


def test_interval_and_point_estimate_can_differ():
    shaky = times([100.0] * 9, [90.0, 95.0, 96.0, 97.0, 110.0, 115.0, 120.0, 125.0, 130.0], [200.0] * 9)
    assert report.reward(shaky, how="paper") == 3
    assert report.reward(shaky, how="interval") == 1


def test_rounds_that_waited_for_a_cpu_are_left_out():
    found = times([100.0] * 10, [200.0] * 10, [200.0] * 10)
    found.samples["eager"][3] = Sample(us=9000.0, reply_us=1.0, cpu_us=1.0, waited_share=0.7)
    assert found.is_quiet()
    assert 3 not in found.quiet()
    assert found.interval("eager").high == pytest.approx(2.0)


def test_without_quiet_rounds_noise_widens_the_interval():
    candidate = [100.0, 30.0, 90.0, 210.0, 60.0, 100.0, 150.0, 70.0]
    noisy = times(candidate, [us * 1.5 for us in candidate], [us * 1.5 for us in candidate], waited=0.9)
    assert not noisy.is_quiet()
    assert noisy.interval("eager").ratio == pytest.approx(1.5)
    assert noisy.interval("eager").call == "inconclusive"
    quiet = times(candidate, [us * 1.5 for us in candidate], [us * 1.5 for us in candidate])
    assert quiet.interval("eager").call == "faster"


def waiting(found, side, rounds):
    for at in rounds:
        found.samples[side][at] = Sample(us=found.samples[side][at].us, reply_us=1.0, cpu_us=1.0, waited_share=0.5)


def test_a_submission_cannot_have_its_slow_rounds_left_out():
    """It waits for CPUs on purpose where it was slow; what a machine does to it, it does to the others as well."""
    candidate = [100.0, 120.0] * 8
    found = times(candidate, [110.0] * 16, [110.0] * 16)
    waiting(found, "submission", range(1, 16, 2))
    assert found.quiet() == list(range(16))
    disturbed = times(candidate, [110.0] * 16, [110.0] * 16)
    waiting(disturbed, "submission", (1, 5))
    waiting(disturbed, "eager", (3, 8))
    assert disturbed.quiet() == [at for at in range(16) if at not in (1, 3, 5, 8)]


NOISE = [1.0, 0.99, 1.012, 0.985, 1.006, 1.0, 0.995, 1.015, 0.99, 1.005, 0.98, 1.01]


@pytest.mark.parametrize(
    ("eager", "compiled", "rounds", "enough"),
    [
        (1.5, 0.7, 6, True),  # clear of both margins on both sides, whatever comes
        (1.5, 0.7, 5, False),  # one order of the sides would count more
        (1.5, 0.7, 4, False),
        (1.5, 1.0, 12, False),  # near a margin
        (1.5, 1.05, 12, False),
        (1.5, 1.035, 8, False),  # its interval excludes the margins, but not with twice its width
    ],
)
def test_rounds_end_early_only_where_neither_call_nor_reward_can_change(eager, compiled, rounds, enough):
    sides = ([us * 100.0 * ratio for us in NOISE[:rounds]] for ratio in (eager, compiled))
    assert stopping.enough(times([100.0] * rounds, *sides)) is enough


def test_a_ratio_is_told_with_some_accuracy():
    wild = [300.0, 150.0, 280.0, 170.0, 310.0, 160.0, 290.0, 155.0]
    assert not stopping.enough(times([100.0] * 8, wild, wild))


def test_tight_intervals_end_rounds_near_a_margin_too():
    steady = [100.0, 100.1, 99.9, 100.2, 99.8] * 2
    assert stopping.enough(times(steady, [100.0] * 10, [100.0] * 10))
    assert not stopping.enough(times(steady[:8], [100.0] * 8, [100.0] * 8))


def test_what_processes_differ_by_is_decided_by_no_round():
    """1.02 may be 1 or 1.05 between two processes for good, 1.12 is neither: rounds end early for both, and for 1.05
    and its neighbourhood, where the call is decided by a hair, they do not.
    """
    for ratio, early in ((1.024, True), (1.12, True), (1.038, False), (1.092, False)):
        sides = [[(1 + (noise - 1) / 4) * 100.0 * ratio for noise in NOISE[:6]] for _ in range(2)]
        found = times([100.0] * 6, *sides)
        found.between = 0.04
        assert stopping.enough(found) is early, ratio
        assert found.interval("eager").low == pytest.approx(found.of_rounds("eager").low / 1.04)


def test_a_noisy_machine_never_narrows_an_interval():
    steady = times([100.0] * 8, [103.0] * 8, [103.0] * 8, waited=0.5)
    steady.between = 0.04
    assert not steady.is_quiet()
    assert steady.interval("eager").call == "inconclusive"


def test_nothing_is_decided_early_on_a_machine_that_is_not_quiet():
    assert not stopping.enough(times([100.0] * 10, [200.0] * 10, [200.0] * 10, waited=0.5))

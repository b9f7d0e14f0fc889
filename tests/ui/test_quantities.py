"""What people write for durations and counts, and how quantities are shown."""

import pytest

from agent.errors import ConfigError
from agent.judging.reports import Speedup
from agent.ui import quantities as q
from agent.ui.summaries import REWARD_WORDS, UNDECIDED_WORDS, UNQUIET_WORDS, reward_meaning


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("15m", 900),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("2d", 172_800),
        ("45s", 45),
        ("0", 0),
        ("1H 30M", 5400),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert q.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "abc", "m15", "15 minutes", "-5", "1h30", "1e3", "nan"])
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        q.parse_duration(text)
    assert "--time" in caught.value.message
    assert "1h30m" in caught.value.hint


@pytest.mark.parametrize(("text", "count"), [("500k", 500_000), ("1.5M", 1_500_000), ("200_000", 200_000), ("0", 0)])
def test_counts_are_read(text: str, count: int) -> None:
    assert q.parse_count(text) == count


@pytest.mark.parametrize("text", ["", "many", "5g", "-1", "k"])
def test_what_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        q.parse_count(text)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1:00"),
        (3599.9, "1:00:00"),
        (-1, "0.0 s"),
    ],
)
def test_durations_round_over_unit_borders(seconds: float, shown: str) -> None:
    assert q.show_duration(seconds) == shown


def test_an_unknown_price_is_not_shown_as_zero() -> None:
    assert q.show_cost(None) == "no price"
    assert q.show_cost(0.0) == "$0.00"
    assert q.show_cost(0.0123) == "$0.0123"


@pytest.mark.parametrize(
    ("time_us", "shown"),
    [(None, "–"), (8.314, "8.31 µs"), (83.14, "83.1 µs"), (831.4, "831 µs"), (1200, "1.20 ms"), (2e6, "2.00 s")],
)
def test_times_keep_three_digits(time_us: float | None, shown: str) -> None:
    assert q.show_us(time_us) == shown


def test_counts_and_sizes_are_short() -> None:
    assert [q.show_count(n) for n in (950, 12_340, 999_960)] == ["950", "12.3k", "1.00M"]
    assert [q.show_bytes(n) for n in (950, 12_340, 1_600_000_000)] == ["950 B", "12.3 kB", "1.6 GB"]


def test_a_speedup_is_shown_with_its_interval() -> None:
    speedup = Speedup(ratio=1.934, low=1.881, high=1.97, call="faster")
    assert q.show_speedup(speedup) == "1.93× (1.88–1.97)"
    assert q.show_speedup(None) == "–"


def test_numbers_of_damaged_logs_are_shown_too() -> None:
    assert (q.show_duration(float("inf")), q.show_duration(float("nan"))) == ("–", "–")
    assert q.show_count(10**400) == "over 1e15"


def test_a_reward_of_one_says_whether_the_clock_could_tell_against_eager() -> None:
    close = Speedup(ratio=1.0, low=0.9, high=1.1, call="inconclusive")
    slower = Speedup(ratio=0.5, low=0.4, high=0.6, call="slower")
    assert reward_meaning(1, eager=close) == UNDECIDED_WORDS
    assert reward_meaning(1, eager=close, quiet=False) == UNQUIET_WORDS
    assert reward_meaning(1, eager=slower) == REWARD_WORDS[1]
    assert reward_meaning(3, eager=close) == REWARD_WORDS[3]
    assert reward_meaning(None, eager=None) == ""

"""The filter language: what it keeps, and that everything wrong is one clear ConfigError."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_runs import accepted, facts_at, write_run

from agent.errors import ConfigError
from agent.export.facts import FIELDS, Facts
from agent.export.filters import parse_filter


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """reward 2, speed-up 1.5 against eager, not timed against compile, four turns, model tiny-1."""
    return facts_at(write_run(tmp_path_factory.mktemp("runs"), accepted(reward=2, eager=1.5)))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("reward>=2", True),
        ("reward > 2", False),
        ("reward==2", True),
        ("reward = 2", True),
        ("reward != 2", False),
        ("reward in (2, 3)", True),
        ("reward in (-1,1)", False),
        ("speedup_eager > 1.4 and turns <= 4", True),
        ("speedup_eager > 1.4 && turns < 4", False),
        ("turns < 4 or accepted", True),
        ("turns < 4 || not accepted", False),
        ("!(turns < 4) and accepted", True),
        ("not not accepted", True),
        ("accepted == true", True),
        ("accepted != true", False),
        ("is_llm = false", False),
        ("model ~ 'tiny-*'", True),
        ("model ~ huge*", False),
        ("model == tiny-1", True),
        ('model in ("tiny-1", other)', True),
        ("reason = submitted", True),
        ("reason in (turns, time)", False),
        ("target == cpu AND policy == strict", True),
        ("cost < 1e2", True),
        ("tokens >= 60 and tokens <= 60", True),
        ("reward >= -1", True),
    ],
)
def test_what_a_filter_keeps(facts: Facts, text: str, kept: bool) -> None:
    assert parse_filter(text).keeps(facts) is kept


def test_or_binds_weaker_than_and(facts: Facts) -> None:
    assert parse_filter("accepted or accepted and turns > 100").keeps(facts)
    assert not parse_filter("(accepted or accepted) and turns > 100").keeps(facts)


@pytest.mark.parametrize("comparison", ["> 1", "< 1", "== 1", "!= 1", ">= 0", "<= 9"])
def test_a_comparison_with_an_unknown_value_is_false(facts: Facts, comparison: str) -> None:
    assert facts.speedup_compile is None
    assert not parse_filter(f"speedup_compile {comparison}").keeps(facts)


def test_the_unknown_can_be_asked_for(facts: Facts) -> None:
    assert parse_filter("speedup_compile == null").keeps(facts)
    assert not parse_filter("speedup_compile != null").keeps(facts)
    assert parse_filter("reward != null").keeps(facts)
    assert parse_filter("reward in (null, 1)").keeps(replace(facts, reward=None))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("rewrd > 1", "did you mean reward"),
        ("colour == red", "no field 'colour'"),
        ("reward", "expected a comparison of reward"),
        ("reward >", "expected a value for reward, found the end"),
        ("reward > fast", "no value for reward"),
        ("reward >= null", "needs a numeric field and a number"),
        ("reward ~ 'x'", "no value for reward"),
        ("accepted ~ true", "no text"),
        ("model > 3", "needs a numeric field"),
        ("reason == submited", "never 'submited'"),
        ("target = tpu", "one of cpu, cuda"),
        ("(reward > 1", "expected )"),
        ("reward > 1)", "and, or, or the end"),
        ("reward > 1 turns < 3", "and, or, or the end"),
        ("reward in 1", "expected ("),
        ("and", "no field 'and'"),
        ("reward > 1 and", "expected a field"),
        ("3 > reward", "expected a field"),
        ("reward; import os", "cannot read ';'"),
        ("__import__('os')", "no field '__import__'"),
        ("facts.__class__ == x", "no field 'facts.__class__'"),
        ("(" * 200 + "accepted" + ")" * 200, "nested"),
    ],
)
def test_what_is_wrong_is_one_clear_error(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_filter(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=60))
def test_no_text_does_anything_but_parse_or_raise_a_config_error(text: str) -> None:
    try:
        parse_filter(text)
    except ConfigError as error:
        assert error.message


@given(st.integers(-5, 5), st.sampled_from([">=", "<=", ">", "<", "==", "!="]), st.integers(-5, 5))
def test_numbers_compare_as_in_python(facts: Facts, value: int, symbol: str, other: int) -> None:
    expected = {
        ">=": value >= other,
        "<=": value <= other,
        ">": value > other,
        "<": value < other,
        "==": value == other,
        "!=": value != other,
    }[symbol]
    assert parse_filter(f"reward {symbol} {other}").keeps(replace(facts, reward=value)) is expected


def test_every_documented_field_can_be_asked_for(facts: Facts) -> None:
    for name, field in FIELDS.items():
        assert hasattr(facts, name)
        parse_filter(f"{name} != null").keeps(facts)
        assert field.meaning


def test_the_readme_example_of_the_module_parses(facts: Facts) -> None:
    text = "reward >= 2 and (speedup_compile > 1.2 or not is_llm) and model ~ 'qwen*' and reason in (submitted, turns)"
    assert not parse_filter(text).keeps(facts)


def test_paths_are_not_needed(tmp_path: Path, facts: Facts) -> None:
    assert parse_filter(f"task == relu and run_id == '{facts.run_id}'").keeps(facts)


def test_the_readme_names_every_field() -> None:
    text = (Path(__file__).resolve().parents[2] / "agent" / "export" / "README.md").read_text()
    section = text.split("## Filters")[1].split("## ")[0]
    assert re.findall(r"^- (\w+):", section, re.MULTILINE) == list(FIELDS)

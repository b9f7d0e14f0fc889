"""What is known about a run: numbers from log and verdict, repeats, broken schemas; and the paper's filters on them."""

import json
import re
import shutil
from pathlib import Path

import pytest
from recorded_runs import (
    RECORDED,
    TURNS,
    Writing,
    accepted,
    call,
    episode_at,
    facts_at,
    make_task,
    rejected,
    said,
    write_run,
)

from agent.backends.base import Usage
from agent.errors import ConfigError
from agent.export.chat import without_untrained
from agent.export.episodes import Skipped
from agent.export.paper import PAPER_FILTERS, paper_filters
from agent.export.rows import RowSettings, Source
from agent.export.scan import scan_runs
from agent.export.scrub import Host
from agent.loop.judgement import Judgement, verdict_record
from agent.trajectory.events import StopReason


def test_a_recorded_run() -> None:
    folder = next(path for path in RECORDED if path.parent.name == "mlp-epilogue")
    facts, eager = facts_at(folder), json.loads((folder / "verdict.json").read_text())["best"]["speedup"]["eager"]
    assert re.fullmatch(r"2026-\d\d-\d\dT\d{4}-mlp-epilogue-[0-9a-f]{8}", facts.run_id)
    assert (facts.reward, facts.verdict, facts.accepted, facts.final_accepted) == (3, "accepted", True, True)
    assert (facts.speedup_eager, facts.low_eager, facts.high_eager) == tuple(
        eager[key] for key in ("ratio", "low", "high")
    )
    assert (facts.turns, facts.actions, facts.reason) == (5, 13, "submitted")
    assert (facts.model, facts.backend, facts.is_llm, facts.token_level) == ("hand-written", "replay", False, False)
    assert (facts.format_errors, facts.invalid_calls, facts.resumed) == (0, 0, 0)


def test_the_verdict_that_counts_is_the_one_of_verdict_json(tmp_path: Path) -> None:
    facts = facts_at(write_run(tmp_path, accepted(reward=3, eager=2.0), final=rejected()))
    assert (facts.reward, facts.accepted, facts.final_accepted) == (3, True, False)


def test_an_unknown_price_makes_the_cost_unknown(tmp_path: Path) -> None:
    priced = said("a", usage=Usage(prompt_tokens=3, completion_tokens=2, cost_usd=0.5))
    unpriced = said("b", usage=Usage(prompt_tokens=3, completion_tokens=2))
    assert facts_at(write_run(tmp_path / "a", turns=(priced, priced))).cost == 1.0
    facts = facts_at(write_run(tmp_path / "b", turns=(priced, unpriced)))
    assert (facts.cost, facts.prompt_tokens, facts.completion_tokens, facts.tokens) == (None, 6, 4, 10)


LOOK = said("", call("bash", {"command": "ls"}))
VERIFY = said("", call("verify"))


def write(content: str) -> object:
    return said("", call("write_file", {"path": "a.cu", "content": content}))


@pytest.mark.parametrize(
    ("turns", "repeats"),
    [
        ((LOOK,) * 4, 4),
        ((LOOK, LOOK, write("1"), LOOK, LOOK), 2),
        ((VERIFY, write("1"), VERIFY, write("2"), VERIFY, write("3"), VERIFY), 1),
        ((VERIFY, LOOK, VERIFY, LOOK, VERIFY, LOOK, VERIFY), 3),
        ((write("1"),) * 5, 5),
        ((write("1"), write("2")) * 4, 4),
        ((said("", call("bash", '{"command": "ls"}')), said("", call("bash", '{ "command" : "ls" }'))), 2),
        ((), 0),
    ],
    ids=[
        "same",
        "after a change",
        "verify after changes",
        "command and verify",
        "same file",
        "to and fro",
        "spaces",
        "none",
    ],
)
def test_how_often_the_same_action_was_called(tmp_path: Path, turns: tuple, repeats: int) -> None:
    assert facts_at(write_run(tmp_path, turns=turns)).most_repeats == repeats


def test_what_was_not_executed_is_no_repeat(tmp_path: Path) -> None:
    writing = Writing(tmp_path, make_task())
    for _ in range(5):
        writing.reply(LOOK, statuses=("not_executed",))
    assert facts_at(writing.end(accepted())).most_repeats == 0


def kept_by(path: Path) -> set[str]:
    return {name for name, found in PAPER_FILTERS.items() if found.keeps(facts_at(path))}


def test_each_paper_filter_on_its_own(tmp_path: Path) -> None:
    every = set(PAPER_FILTERS)
    assert kept_by(write_run(tmp_path / "good")) == every
    assert kept_by(write_run(tmp_path / "rejected", rejected())) == every - {"positive", "verified"}
    assert kept_by(write_run(tmp_path / "loop", turns=(LOOK,) * 4)) == every - {"loops"}
    assert kept_by(write_run(tmp_path / "three", turns=(LOOK,) * 3)) == every
    assert kept_by(write_run(tmp_path / "final", final=rejected())) == every - {"verified"}


def test_an_unknown_action_and_broken_arguments_are_broken_schemas(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "unknown", make_task())
    writing.reply(said("", call("browse", {"url": "x"})), statuses=("invalid",), error="there is no action 'browse'")
    assert kept_by(writing.end(accepted())) == set(PAPER_FILTERS) - {"schemas"}
    writing = Writing(tmp_path / "text", make_task())
    writing.reply(said("```bash\nls", raw={"format_error": "the block is not closed"}), error="the block is not closed")
    assert kept_by(writing.end(accepted())) == set(PAPER_FILTERS) - {"schemas"}


def test_a_reply_without_any_action_is_no_broken_schema(tmp_path: Path) -> None:
    writing = Writing(tmp_path, make_task())
    writing.reply(said("I think I am done."), error="the reply held no action")
    facts = facts_at(writing.end(accepted()))
    assert (facts.format_errors, facts.schema_errors) == (1, 0)


def test_paper_filters_by_name() -> None:
    assert paper_filters(["all"]) == tuple(PAPER_FILTERS.values())
    assert paper_filters(["schemas,positive"]) == (PAPER_FILTERS["positive"], PAPER_FILTERS["schemas"])
    assert paper_filters([]) == ()
    with pytest.raises(ConfigError, match="no paper filter 'loop'"):
        paper_filters(["loop"])


def test_trouble_around_a_run_is_not_settled(tmp_path: Path) -> None:
    writing = Writing(tmp_path, make_task())
    writing.reply(TURNS[0])
    facts = facts_at(writing.end(None, reason=StopReason.BACKEND))
    assert (facts.settled, facts.reward, facts.verdict) == (False, None, None)


def test_a_reward_that_no_verdict_gives_is_no_reward(tmp_path: Path) -> None:
    run = write_run(tmp_path, rejected())
    record = json.loads((run / "verdict.json").read_bytes())
    for forged in (
        record | {"reward": 3},
        record | {"best": None, "final": None, "counts": None},
        record | {"best": record["best"] | {"speedup": "much"}},
        record | {"reward": True},
    ):
        (run / "verdict.json").write_text(json.dumps(forged))
        with pytest.raises(Skipped) as caught:
            episode_at(run)
        assert caught.value.reason == "damaged"


def test_of_two_copies_the_one_judged_again_counts(tmp_path: Path) -> None:
    old = write_run(tmp_path / "a", accepted(reward=3))
    new = tmp_path / "b" / old.name
    shutil.copytree(old, new)
    verdict = rejected()
    record = verdict_record(StopReason.SUBMITTED, -1, Judgement({"best": verdict, "final": verdict}))
    (new / "verdict.json").write_text(json.dumps(record | {"judge": {"agent_version": "0.2.0", "tools_sha256": "f"}}))
    for paths in ((tmp_path / "a", tmp_path / "b"), (tmp_path / "b", tmp_path / "a")):
        *_, scan = scan_runs(paths, jobs=1)
        assert (scan.duplicates, [facts.reward for facts in scan.facts]) == (1, [-1])


def test_ids_that_each_reply_has_again_are_those_of_their_reply(tmp_path: Path) -> None:
    """A broken call is left out with its result, and not with it the result of a sound one of the same id."""
    turns = (
        said("", call("bash", "{broken", id="call_0")),
        said("", call("bash", {"command": "ls"}, id="call_0")),
        said("Done.", call("submit", id="call_0")),
    )
    source = Source(RowSettings(Host(home="/home/a", user="a", name="a", temp="/tmp")))
    kept = without_untrained(source.chat(episode_at(write_run(tmp_path, turns=turns))))
    assert [line.role for line in kept.lines] == ["system", "user", "assistant", "tool", "assistant"]

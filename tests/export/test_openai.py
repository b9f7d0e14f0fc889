"""OpenAI's fine-tuning format: held against a checker of the endpoint's rules; weights; broken and hostile content."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from fine_tuning_file import problems
from recorded_runs import RECORDED, TURNS, Writing, accepted, call, lines_of, make_task, said, write_run

from agent.export.export import Request, export_runs


def exported(runs: Path, tmp_path: Path, **fields: Any) -> Path:
    export_runs(Request((runs,), "openai", tmp_path / "out", jobs=1, **fields))
    return tmp_path / "out" / "train.jsonl"


def test_recorded_runs_pass_the_checker(tmp_path: Path) -> None:
    path = exported(RECORDED[0].parents[1], tmp_path)
    assert len(lines_of(path)) == len(RECORDED)
    assert problems(path) == []
    assert all(m["weight"] == 1 for row in lines_of(path) for m in row["messages"] if m["role"] == "assistant")


def hostile(runs: Path) -> None:
    """Whatever a model and its commands can come up with, in one run."""
    writing = Writing(runs, make_task())
    writing.reply(said("", call("bash", '{"command": "ls"')), statuses=("invalid",), error="no valid JSON")
    writing.reply(said("", call("bash", '["ls"]'), call("verify")), statuses=("invalid", "ok"))
    writing.reply(said("", call("brow se\u00e9!", {"a": 1})), statuses=("invalid",), error="no such action")
    writing.reply(said(""), error="the reply held no action")
    writing.say("user", "There was no action in that.", origin="format_error")
    writing.reply(
        said("a \ud83d b \u2028 \x00 <script>", call("bash", {"command": "printf '\udcff'"})),
        texts=("\ud800 caf\u00e9 \ufffd \x1b[31m" + "x" * 100_000,),
    )
    writing.say("user", "Please hurry.", origin="person")
    writing.reply(TURNS[-1])
    writing.end(accepted())


def test_whatever_a_model_writes_is_a_valid_line_and_only_sound_replies_have_weight(tmp_path: Path) -> None:
    hostile(tmp_path / "runs")
    path = exported(tmp_path / "runs", tmp_path)
    assert problems(path) == []
    (row,) = lines_of(path)
    replies = [message for message in row["messages"] if message["role"] == "assistant"]
    assert [message["weight"] for message in replies] == [0, 0, 0, 0, 1, 1]
    assert json.loads(replies[0]["tool_calls"][0]["function"]["arguments"]) == {"invalid_arguments": '{"command": "ls"'}
    assert json.loads(replies[1]["tool_calls"][0]["function"]["arguments"]) == {"invalid_arguments": '["ls"]'}
    assert replies[4]["content"] == "a \ufffd b \u2028 \x00 <script>"
    assert row["parallel_tool_calls"] is True


def test_format_errors_have_weight_where_that_is_asked_for(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "runs", make_task())
    writing.reply(said("I am thinking."), error="the reply held no action")
    writing.say("user", "There was no action in that.", origin="format_error")
    writing.reply(TURNS[-1])
    writing.end(accepted())
    (row,) = lines_of(exported(tmp_path / "runs", tmp_path, train_format_errors=True))
    assert [message["weight"] for message in row["messages"] if message["role"] == "assistant"] == [1, 1]


def test_the_text_of_arguments_is_the_models_own_where_nothing_was_changed(tmp_path: Path) -> None:
    text = '{ "command" :"ls\\u00e9",  "timeout_s": 1.50 }'
    write_run(tmp_path / "runs", turns=(said("", call("bash", text)),))
    (row,) = lines_of(exported(tmp_path / "runs", tmp_path))
    assert row["messages"][-1]["tool_calls"][0]["function"]["arguments"] == text


def test_a_message_in_the_middle_of_a_reply_comes_behind_its_results(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "runs", make_task())
    writing.reply(TURNS[2])
    writing.say("user", "You have 3 turns left.", origin="limit")
    writing.reply(TURNS[-1])
    writing.end(accepted())
    path = exported(tmp_path / "runs", tmp_path)
    assert problems(path) == []
    roles = [message["role"] for message in lines_of(path)[0]["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "user", "assistant"]


def _drop(row: dict[str, Any], at: int) -> None:
    del row["messages"][at]


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda row: row.update(reward=3), "unknown field reward"),
        (lambda row: _drop(row, 3), "have no result"),
        (lambda row: _drop(row, 2), "a result of no call"),
        (lambda row: _drop(row, -1), "last message"),
        (lambda row: row["messages"][2]["tool_calls"][0]["function"].update(arguments={"a": 1}), "no text"),
        (lambda row: row["messages"][2].update(weight=2), "weight"),
        (lambda row: row["messages"][2]["tool_calls"][0]["function"].update(name="browse"), "no tool"),
        (lambda row: row["messages"][2].update(reasoning="x"), "unknown field reasoning"),
    ],
)
def test_the_checker_notices(tmp_path: Path, break_it: Any, says: str) -> None:
    write_run(tmp_path / "runs")
    (row,) = lines_of(exported(tmp_path / "runs", tmp_path))
    broken = copy.deepcopy(row)
    break_it(broken)
    path = tmp_path / "broken.jsonl"
    path.write_text(json.dumps(broken) + "\n")
    assert any(says in problem for problem in problems(path))

"""ATIF: trajectories that an independent validator accepts, with results in the step of their call, ids and totals."""

import json
from array import array
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("atif", reason="the validator is not installed: pip install atif")

import atif
from recorded_runs import RECORDED, TURNS, Writing, accepted, call, make_task, said, write_run

from agent.backends.base import Usage
from agent.export.export import Request, export_runs

IDS = {"prompt_token_ids": (1, 2), "completion_token_ids": (3, 4), "logprobs": (-0.5, -1.5)}


def trajectories(runs: Path, tmp_path: Path, layout: str | None = None) -> list[dict[str, Any]]:
    export_runs(Request((runs,), "atif", tmp_path / "out", layout, jobs=1))
    if layout == "jsonl":
        found = [json.loads(line) for line in (tmp_path / "out" / "train.jsonl").read_bytes().splitlines()]
    else:
        found = [json.loads(path.read_bytes()) for path in sorted((tmp_path / "out" / "train").glob("*.json"))]
    for one in found:
        atif.Trajectory.model_validate(one, strict=True)
        _harbor_is_stricter(one)
    return found


def _harbor_is_stricter(one: dict[str, Any]) -> None:
    """What Harbor's own models refuse and this validator lets pass."""
    assert one["schema_version"] == "ATIF-v1.8"
    assert one["steps"]
    assert all(isinstance(step["message"], str) for step in one["steps"])


@pytest.mark.parametrize("layout", ["files", "jsonl"])
def test_recorded_runs(tmp_path: Path, layout: str) -> None:
    found = trajectories(RECORDED[0].parents[1], tmp_path, layout)
    assert len(found) == len(RECORDED)
    rewards = [json.loads((run / "verdict.json").read_text())["reward"] for run in RECORDED]
    assert sorted(one["extra"]["reward"] for one in found) == sorted(rewards)
    assert all(one["final_metrics"]["total_steps"] == len(one["steps"]) for one in found)


def test_the_results_stand_in_the_step_of_their_calls(tmp_path: Path) -> None:
    write_run(tmp_path / "runs")
    (one,) = trajectories(tmp_path / "runs", tmp_path)
    steps = one["steps"]
    assert [step["source"] for step in steps] == ["system", "user", *["agent"] * len(TURNS)]
    assert [step["step_id"] for step in steps] == list(range(1, len(steps) + 1))
    calls, results = steps[4]["tool_calls"], steps[4]["observation"]["results"]
    assert [call["function_name"] for call in calls] == ["verify", "profile"]
    assert [result["source_call_id"] for result in results] == [call["tool_call_id"] for call in calls]
    assert [result["content"] for result in results] == ["result of verify", "result of profile"]
    assert steps[-1]["observation"]["results"][0]["content"] == "result of submit"
    assert steps[3]["tool_calls"][0]["arguments"]["path"] == "model_new.py"


def test_totals_are_never_a_partial_sum(tmp_path: Path) -> None:
    priced = said("a", usage=Usage(prompt_tokens=10, completion_tokens=5, cached_tokens=4, cost_usd=0.5))
    unpriced = said("b", usage=Usage(prompt_tokens=20, completion_tokens=6, cached_tokens=1))
    write_run(tmp_path / "priced" / "runs", turns=(priced, priced))
    write_run(tmp_path / "unpriced" / "runs", turns=(priced, unpriced))
    (one,) = trajectories(tmp_path / "priced" / "runs", tmp_path / "priced")
    assert one["final_metrics"]["total_cost_usd"] == 1.0
    (one,) = trajectories(tmp_path / "unpriced" / "runs", tmp_path / "unpriced")
    totals = one["final_metrics"]
    assert "total_cost_usd" not in totals
    assert (totals["total_prompt_tokens"], totals["total_completion_tokens"], totals["total_cached_tokens"]) == (
        30,
        11,
        5,
    )
    assert "cost_usd" not in one["steps"][-1]["metrics"]


def test_ids_and_logprobs_come_through(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", turns=(said("a", **IDS),))
    (one,) = trajectories(tmp_path / "runs", tmp_path)
    metrics = one["steps"][-1]["metrics"]
    assert metrics["prompt_token_ids"] == [1, 2]
    assert metrics["completion_token_ids"] == [3, 4]
    assert metrics["logprobs"] == [-0.5, -1.5]
    assert one["extra"]["token_level"] is True


def test_ids_are_withheld_where_the_text_held_a_secret(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", turns=(said("the key is sk-abcdefghijklmnop1234", **IDS),))
    (one,) = trajectories(tmp_path / "runs", tmp_path)
    assert "prompt_token_ids" not in one["steps"][-1]["metrics"]
    assert one["extra"]["token_level"] is False
    assert "the key is <secret>" in json.dumps(one)


def test_broken_replies_and_complaints_are_part_of_the_trajectory(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "runs", make_task())
    writing.reply(said("", call("bash", "{oops")), statuses=("invalid",), error="no valid JSON")
    writing.reply(said("Hm.", reasoning="what now"), error="the reply held no action")
    writing.say("user", "There was no action in that.", origin="format_error")
    writing.reply(TURNS[-1])
    writing.end(accepted())
    (one,) = trajectories(tmp_path / "runs", tmp_path)
    steps = one["steps"]
    assert steps[2]["tool_calls"][0]["arguments"] == {"invalid_arguments": "{oops"}
    assert steps[3]["reasoning_content"] == "what now"
    assert steps[3]["extra"]["format_error"] == "the reply held no action"
    assert (steps[4]["source"], steps[4]["extra"]) == ("user", {"origin": "format_error"})


def test_ids_take_eight_bytes_each_in_memory(tmp_path: Path) -> None:
    from recorded_runs import episode_at

    path = write_run(tmp_path, turns=(said("a", **IDS),))
    (turn,) = episode_at(path).turns
    assert turn.tokens is not None
    assert turn.tokens.prompt == array("q", (1, 2))
    assert turn.reply.prompt_token_ids is None


def test_addresses_of_servers_and_engines_stay_at_home(tmp_path: Path) -> None:
    backend = {"kind": "openai", "model": "tiny-1", "base_url": "http://node-17.corp.example:8000/v1", "seed": 7}
    write_run(tmp_path / "runs", backend=backend)
    (one,) = trajectories(tmp_path / "runs", tmp_path)
    assert one["agent"]["extra"] == {
        "backend": {"kind": "openai", "model": "tiny-1", "seed": 7},
        "sandbox": {"kind": "docker"},
    }


def test_a_name_in_a_log_leads_nowhere(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs")
    first, rest = (run / "events.jsonl").read_bytes().split(b"\n", 1)
    start = json.loads(first) | {"run_id": "../../escaped/" + "x" * 300}
    (run / "events.jsonl").write_bytes(json.dumps(start).encode() + b"\n" + rest)
    (one,) = trajectories(tmp_path / "runs", tmp_path)
    assert one["session_id"] == start["run_id"]
    assert not (tmp_path / "escaped").exists()

"""ShareGPT: speakers take turns, and all results of a reply are one turn, as readers of the format want it."""

from pathlib import Path

import pytest
from recorded_runs import RECORDED, TURNS, call, lines_of, said, write_run

from agent.export.export import Request, export_runs

BROKEN = said("", call("bash", "{broken"), call("bash", {"command": "ls"}))


def test_speakers_take_turns(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", turns=(TURNS[0], BROKEN, *TURNS[1:]))
    export_runs(Request((run, *RECORDED), "sharegpt", tmp_path / "out", jobs=1))
    rows = lines_of(tmp_path / "out" / "train.jsonl")
    assert len(rows) == 1 + len(RECORDED)
    for row in rows:
        head, *speakers = [turn["from"] for turn in row["conversations_sharegpt"]]
        assert head == "system" and len(speakers) % 2 == 0
        assert speakers == ["human", "gpt"] * (len(speakers) // 2)
        roles = {"human": "user", "gpt": "assistant", "system": "system"}
        both = zip(row["conversations_sharegpt"], row["conversations"], strict=True)
        assert all((roles[a["from"]], a["value"]) == (b["role"], b["content"]) for a, b in both)


@pytest.mark.parametrize("run", RECORDED[:1])
def test_no_result_is_lost(tmp_path: Path, run: Path) -> None:
    export_runs(Request((run,), "sharegpt", tmp_path / "sharegpt", jobs=1))
    export_runs(Request((run,), "trl-sft", tmp_path / "trl", jobs=1))
    (spoken,), (row,) = lines_of(tmp_path / "sharegpt" / "train.jsonl"), lines_of(tmp_path / "trl" / "train.jsonl")
    human = "\n".join(turn["value"] for turn in spoken["conversations_sharegpt"] if turn["from"] == "human")
    results = [message["content"] for message in row["messages"] if message["role"] == "tool"]
    assert human.count("<tool_response>") == len(results)
    assert all(result in human for result in results)

"""The whole export: same bytes in any order, splits, funnel, skipped runs, the card, what an interruption leaves."""

import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from recorded_runs import (
    RECORDED,
    ROOT,
    TURNS,
    Writing,
    accepted,
    copy_example,
    lines_of,
    make_task,
    rejected,
    write_run,
)

from agent.errors import ConfigError, RecordError
from agent.export import export as module
from agent.export.export import Exported, Request, export_runs
from agent.export.formats import FORMATS
from agent.trajectory.events import StopReason


def run(runs: Path | tuple[Path, ...], out: Path, format: str = "trl-sft", **fields: Any) -> Exported:
    paths = runs if isinstance(runs, tuple) else (runs,)
    return export_runs(Request(paths, format, out, **{"jobs": 1, **fields}))


def digests(out: Path) -> dict[str, str]:
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


def card(out: Path) -> dict[str, Any]:
    return json.loads((out / "card.json").read_bytes())


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six tasks with four runs each: rewards 3, 2, 1, -1."""
    folder = tmp_path_factory.mktemp("many")
    verdicts = [accepted(reward=3, eager=3.0), accepted(reward=2, eager=1.5), accepted(reward=1, eager=1.0), rejected()]
    for number in range(6):
        for at, verdict in enumerate(verdicts):
            write_run(folder / f"{number}-{at}", verdict, task=make_task(f"op{number}"))
    return folder


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_runs_give_the_same_bytes_in_any_order_from_any_place(many: Path, tmp_path: Path, format: str) -> None:
    split = "train:0.5,val:0.5"
    first = run(many, tmp_path / "first", format, split=split)
    paths = sorted(many.iterdir())
    random.Random(7).shuffle(paths)
    run((*paths, many), tmp_path / "second", format, split=split)
    shutil.copytree(many, tmp_path / "moved" / "deeper")
    run(tmp_path / "moved", tmp_path / "third", format, split=split)
    assert first.rows >= 6
    assert digests(tmp_path / "first") == digests(tmp_path / "second") == digests(tmp_path / "third")


def test_worker_processes_change_nothing(many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW_RUNS", 2)
    run(many, tmp_path / "one", jobs=1)
    run(many, tmp_path / "two", jobs=2)
    assert digests(tmp_path / "one") == digests(tmp_path / "two")


def test_all_runs_of_a_task_fall_into_one_split(many: Path, tmp_path: Path) -> None:
    run(many, tmp_path / "out", split="train:0.5,val:0.3,test:0.2")
    places: dict[str, set[str]] = {}
    for path in (tmp_path / "out").glob("*.jsonl"):
        for row in lines_of(path):
            places.setdefault(row["task_sha256"], set()).add(path.stem)
    splits = {record["task_sha256"]: record["split"] for record in lines_of(tmp_path / "out" / "provenance.jsonl")}
    assert len(places) == 6
    assert all(found == {splits[task], "provenance"} for task, found in places.items())
    assert len({splits[task] for task in places}) > 1


@pytest.mark.parametrize(
    ("split", "says"),
    [
        ("train:0.9", "make 0.9"),
        ("train:0.5,train:0.5", "twice"),
        ("train", "cannot be read"),
        ("a/b:1", "cannot be read"),
        ("train:1.5,val:-0.5", "cannot be read"),
        ("train:nan,val:1", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_a_wrong_split_is_a_users_error(many: Path, tmp_path: Path, split: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        run(many, tmp_path / "out", split=split)
    assert not (tmp_path / "out").exists()


def test_the_funnel_counts_what_each_filter_removed_and_would_have_removed_alone(many: Path, tmp_path: Path) -> None:
    exported = run(
        many, tmp_path / "out", filters=("reward >= 1", "speedup_eager > 1.2"), paper=("all",), max_per_task=1
    )
    steps = [(step.name.split(":")[0], step.removed, step.left, step.alone) for step in exported.funnel]
    assert steps == [
        ("runs found", 0, 24, None),
        ("finished and readable", 0, 24, None),
        ("each run once", 0, 24, None),
        ("settled", 0, 24, None),
        ("filter", 6, 18, 6),
        ("filter", 6, 12, 12),
        ("paper filter positive", 0, 12, 6),
        ("paper filter loops", 0, 12, 0),
        ("paper filter schemas", 0, 12, 0),
        ("paper filter verified", 0, 12, 6),
        ("at most 1 of a task", 6, 6, None),
    ]
    assert card(tmp_path / "out")["reward_histogram"] == {"3": 6}
    assert [step["left"] for step in card(tmp_path / "out")["funnel"]] == [step[2] for step in steps]


def test_the_best_of_a_task(many: Path, tmp_path: Path) -> None:
    exported = run(many, tmp_path / "out", best_of_task=True)
    assert [row["reward"] for row in lines_of(tmp_path / "out" / "train.jsonl")] == [3] * 6
    assert (exported.rows, exported.tasks) == (6, 6)


def test_pairs_are_made_of_the_best_and_the_worst(many: Path, tmp_path: Path) -> None:
    run(many, tmp_path / "out", "trl-preference")
    rewards = [(row["chosen_reward"], row["rejected_reward"]) for row in lines_of(tmp_path / "out" / "train.jsonl")]
    assert sorted(rewards) == sorted([(3, -1), (2, 1)] * 6)
    run(many, tmp_path / "few", "trl-preference", max_per_task=1)
    assert len(lines_of(tmp_path / "few" / "train.jsonl")) == 6


def test_no_pair_where_the_intervals_overlap_or_the_prompts_differ(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", accepted(eager=1.5, width=0.3))
    write_run(tmp_path / "runs", accepted(eager=1.9, width=0.3))
    write_run(tmp_path / "runs", rejected(), opening="asked in other words")
    exported = run(tmp_path / "runs", tmp_path / "out", "trl-preference")
    assert (exported.rows, exported.files) == (0, ())
    assert not (tmp_path / "out").exists()


def test_no_pair_of_two_judges(tmp_path: Path) -> None:
    good, bad = write_run(tmp_path / "runs", accepted()), write_run(tmp_path / "runs", rejected())
    assert run(tmp_path / "runs", tmp_path / "own", "trl-preference").rows == 1
    for path, tools in ((bad, "new"), (good, "newer")):
        record = json.loads((path / "verdict.json").read_bytes())
        judge = {"agent_version": "0.1.0", "tools_sha256": tools}
        (path / "verdict.json").write_text(json.dumps(record | {"judge": judge}))
        assert run(tmp_path / "runs", tmp_path / tools, "trl-preference").rows == 0
    (good / "verdict.json").write_text((good / "verdict.json").read_text().replace('"newer"', '"new"'))
    assert run(tmp_path / "runs", tmp_path / "both", "trl-preference").rows == 1


def test_a_run_that_lies_there_twice_counts_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        copy_example(RECORDED[0], tmp_path / "runs" / name)
    copy_example(RECORDED[0], tmp_path / "runs" / "c", run_id="another")
    exported = run(tmp_path / "runs", tmp_path / "out")
    assert exported.rows == 2
    assert [step.removed for step in exported.funnel if step.name == "each run once"] == [1]


def change(path: Path, line: int, **fields: Any) -> None:
    lines = (path / "events.jsonl").read_bytes().splitlines()
    lines[line] = json.dumps(json.loads(lines[line]) | fields).encode()
    (path / "events.jsonl").write_bytes(b"\n".join(lines) + b"\n")


def damage(runs: Path) -> dict[str, str]:
    """One run for each kind of trouble: name of the run -> the reason that it must be skipped with."""
    copies = {
        name: copy_example(RECORDED[number % len(RECORDED)], runs / name)
        for number, name in enumerate(
            (
                "version",
                "type",
                "field",
                "cut",
                "gap",
                "no-verdict",
                "torn-verdict",
                "old-verdict",
                "task",
                "no-log",
                "list",
            )
        )
    }
    change(copies["version"], 0, version=2)
    change(copies["type"], 4, type="thought")
    change(copies["field"], 4, mood="good")
    change(copies["gap"], 4, seq=99)
    log = copies["cut"] / "events.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"seq":5,', b'"seq":5', 1).replace(b'"seq": 5,', b'"seq": 5', 1))
    (copies["no-verdict"] / "verdict.json").unlink()
    (copies["torn-verdict"] / "verdict.json").write_text('{"schema_version": 1, "reas')
    verdict = json.loads((copies["old-verdict"] / "verdict.json").read_bytes())
    (copies["old-verdict"] / "verdict.json").write_text(json.dumps(verdict | {"schema_version": 0}))
    task = json.loads((copies["task"] / "task.json").read_bytes())
    (copies["task"] / "task.json").write_text(json.dumps(task | {"text": "other"}))
    (copies["no-log"] / "events.jsonl").unlink()
    (copies["list"] / "verdict.json").write_text("[]")
    return {
        "version": "other_version",
        "type": "unknown_event",
        "field": "unknown_field",
        "cut": "damaged",
        "gap": "damaged",
        "no-verdict": "no_verdict",
        "torn-verdict": "no_verdict",
        "old-verdict": "other_version",
        "task": "damaged",
        "no-log": "unreadable",
        "list": "no_verdict",
    }


def test_runs_that_cannot_be_read_are_skipped_with_the_reason(tmp_path: Path) -> None:
    reasons = damage(tmp_path / "runs")
    write_run(tmp_path / "runs" / "good")
    exported = run(tmp_path / "runs", tmp_path / "out")
    assert exported.rows == 1
    assert exported.skipped == {
        reason: list(reasons.values()).count(reason) for reason in sorted(set(reasons.values()))
    }
    examples = card(tmp_path / "out")["skipped_examples"]
    told = {line.split(":")[0]: reason for reason, lines in examples.items() for line in lines}
    assert told == reasons


def test_a_torn_last_line_is_no_damage(tmp_path: Path) -> None:
    path = write_run(tmp_path / "runs")
    with (path / "events.jsonl").open("ab") as file:
        file.write(b'{"seq": 99, "t"')
    assert run(tmp_path / "runs", tmp_path / "out").rows == 1


def test_what_infrastructure_ended_is_not_exported(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "runs", make_task())
    writing.reply(TURNS[0])
    writing.end(None, reason=StopReason.SANDBOX)
    exported = run(tmp_path / "runs", tmp_path / "out")
    assert (exported.rows, [step.removed for step in exported.funnel][-1]) == (0, 1)


def test_where_nothing_is_left_nothing_stands_there_afterwards(many: Path, tmp_path: Path) -> None:
    assert run(many, tmp_path / "out", filters=("reward > 3",)).files == ()
    assert list(tmp_path.iterdir()) == []


def test_an_output_with_something_in_it_is_not_touched(many: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match="not empty"):
        run(many, out)
    with pytest.raises(ConfigError, match="no earlier export"):
        run(many, out, overwrite=True)
    assert (out / "thesis.tex").read_text() == "years of work"
    with pytest.raises(ConfigError, match="no folder"):
        run(many, out / "thesis.tex")


def test_an_earlier_export_is_replaced_as_a_whole(many: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(many, out, split="train:0.5,val:0.5")
    with pytest.raises(ConfigError, match="--overwrite"):
        run(many, out)
    run(many, out, "openai", overwrite=True)
    assert sorted(path.name for path in out.iterdir()) == ["README.md", "card.json", "provenance.jsonl", "train.jsonl"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("layout", ["jsonl", "parquet"])
def test_a_failure_in_the_middle_leaves_what_was_there(
    many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    out = tmp_path / "out"
    run(many, out)
    before = digests(out)
    calls = 0

    def progress(stage: str, done: int, total: int | None) -> None:
        nonlocal calls
        calls += stage == "writing"
        if calls == 2:
            raise OSError(28, "No space left on device")

    with pytest.raises(RecordError, match="disk is full"):
        export_runs(Request((many,), "trl-sft", out, layout, overwrite=True, jobs=1), progress=progress)
    assert digests(out) == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


CODE = """\
import sys, time
from pathlib import Path
from agent.export.export import Request, export_runs

def progress(stage, done, total):
    print(stage, done, flush=True)
    time.sleep(0.2 if stage == "writing" else 0)

export_runs(Request((Path(sys.argv[1]),), "trl-sft", Path(sys.argv[2]), jobs=2), progress=progress)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_an_export_that_is_killed_leaves_no_half_data_set(many: Path, tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", CODE, str(many), str(tmp_path / "out")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("writing"):
            assert process.poll() is None
        os.kill(process.pid, number)
    assert process.returncode != 0
    assert not (tmp_path / "out").exists()
    visible = [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    assert visible == []
    assert number is signal.SIGKILL or list(tmp_path.iterdir()) == []
    run(many, tmp_path / "out")


def test_the_card_says_where_the_data_comes_from(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", task=make_task("relu", path="/data/KernelBench/KernelBench/level1/1_relu.py"))
    write_run(tmp_path / "runs", task=make_task("gelu", path="/data/sets/mine.jsonl"))
    licensed = "# SPDX-License-Identifier: BSD-3-Clause\n" + make_task("tanh").text
    path = write_run(tmp_path / "runs", rejected(), task=make_task("tanh", text=licensed))
    record = json.loads((path / "verdict.json").read_bytes())
    (path / "verdict.json").write_text(
        json.dumps(record | {"judge": {"agent_version": "9.9", "tools_sha256": "ab" * 32}})
    )
    run(tmp_path / "runs", tmp_path / "out")
    found = card(tmp_path / "out")
    assert found["licences"] == {"BSD-3-Clause": 1, "MIT": 1, "unknown": 1}
    assert found["sources"] == {"KernelBench": 1, "a file of its own": 1, "mine.jsonl": 1}
    assert found["judge_versions"] == {"0.1.0": 2, "9.9": 1}
    assert found["judge_tools_sha256"] == {"ab" * 32: 1, "not recorded": 2}
    assert found["reward_histogram"] == {"-1": 1, "2": 2}
    assert found["models"] == {"tiny-1": 3}
    for file in found["files"]:
        data = (tmp_path / "out" / file["path"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["bytes"], file["sha256"])
    provenance = (tmp_path / "out" / "provenance.jsonl").read_bytes()
    assert hashlib.sha256(provenance).hexdigest() == found["provenance"]["sha256"]
    events = {hashlib.sha256(log.read_bytes()).hexdigest() for log in (tmp_path / "runs").glob("*/events.jsonl")}
    assert {json.loads(line)["events_sha256"] for line in provenance.splitlines()} == events
    readme = (tmp_path / "out" / "README.md").read_text()
    assert readme.startswith("---\nconfigs:\n- config_name: default\n")
    assert all(text in readme for text in ("BSD-3-Clause", "reward", "not checked", "tiny-1"))


def test_tasks_that_are_too_near_to_the_benchmark_are_dropped(tmp_path: Path) -> None:
    for example in RECORDED:
        copy_example(example, tmp_path / "runs" / example.parent.name)
    level = tmp_path / "KernelBench" / "KernelBench" / "level1"
    level.mkdir(parents=True)
    same = (RECORDED[0].parent / "model.py").read_text()
    (level / "1_same.py").write_text(re.sub(r"\bx\b", "value", same))
    (level / "2_other.py").write_text("class Model:\n    def forward(self, a, b):\n        return a @ b\n")
    exported = run(tmp_path / "runs", tmp_path / "out", decontaminate=tmp_path / "KernelBench")
    found = card(tmp_path / "out")["contamination"]
    assert (found["problems"], found["tasks"], found["dropped"], found["not_comparable"]) == (2, len(RECORDED), 1, 0)
    assert found["nearest"][0] == {
        "task_sha256": hashlib.sha256(same.encode()).hexdigest(),
        "nearest": "level1/1_same.py",
        "similarity": 1.0,
        "dropped": True,
    }
    assert len(found["nearest"]) == len(RECORDED)
    assert all(item["nearest"] and not item["dropped"] for item in found["nearest"][1:])
    assert exported.tasks == len(RECORDED) - 1


def test_nothing_of_the_host_is_in_the_files(tmp_path: Path) -> None:
    task = make_task("relu", path="/home/annabel/secret-project/model.py")
    backend = {"kind": "openai", "model": "/home/annabel/models/tiny", "base_url": "http://localhost:8000/v1"}
    writing = Writing(tmp_path / "runs", task, backend=backend)
    key = "sk-" + "abcd1234" * 4
    texts = (f"OPENAI_API_KEY={key}\nannabel@box:~$ ls {writing.folder.path}/workspace /workspace /home/annabel/x",)
    writing.reply(TURNS[0], texts=texts)
    writing.reply(TURNS[-1])
    writing.end(accepted())
    for format in FORMATS:
        if format != "trl-preference":
            assert run(tmp_path / "runs", tmp_path / format, format, layout=None).rows == 1
            text = b"".join(path.read_bytes() for path in (tmp_path / format).rglob("*") if path.is_file())
            for word in (key, "annabel", str(tmp_path), "secret-project"):
                assert word.encode() not in text, (format, word)
    found = card(tmp_path / "trl-sft")
    assert found["scrubbed"] == {"names": 1, "paths": 2, "secrets": 1}
    assert found["models"] == {"<home>/models/tiny": 1}
    (row,) = lines_of(tmp_path / "trl-sft" / "train.jsonl")
    assert (
        row["messages"][3]["content"] == "OPENAI_API_KEY=<secret>\n<user>@box:~$ ls <run>/workspace /workspace <home>/x"
    )


def test_what_is_wrong_with_the_request_is_said_before_a_run_is_read(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for fields, says in (
        ({"format": "csv"}, "no format 'csv'"),
        ({"format": "openai", "layout": "parquet"}, "not written as parquet"),
        ({"filters": ("rewrd > 1",)}, "did you mean reward"),
        ({"paper": ("fast",)}, "no paper filter"),
        ({"best_of_task": True, "max_per_task": 2}, "exclude each other"),
        ({"format": "trl-preference", "best_of_task": True}, "two runs of a task"),
        ({"words": ("ab",)}, "too short"),
        ({"desirable": "reward >"}, "expected a value"),
        ({"decontaminate": tmp_path / "nowhere"}, "not a folder"),
    ):
        with pytest.raises(ConfigError, match=says):
            run(runs, tmp_path / "out", **fields)
    with pytest.raises(ConfigError, match="not a folder"):
        run(runs, tmp_path / "out")
    runs.mkdir()
    with pytest.raises(ConfigError, match="no runs"):
        run(runs, tmp_path / "out")


def test_a_run_of_many_tokens_is_one_row(tmp_path: Path) -> None:
    """100 turns whose prompts grow to 10,000 ids: half a million ids in the log, one row of 10,000 in the file."""
    writing = Writing(tmp_path / "runs", make_task())
    seen = list(range(100))
    for number in range(100):
        reply = TURNS[0].model_copy(
            update={
                "prompt_token_ids": tuple(seen),
                "completion_token_ids": tuple(range(number, number + 50)),
                "logprobs": (-0.5,) * 50,
            }
        )
        writing.reply(reply)
        seen += [*range(number, number + 50), *range(50)]
    writing.end(accepted())
    run(tmp_path / "runs", tmp_path / "out", "rl-steps")
    (row,) = lines_of(tmp_path / "out" / "train.jsonl")
    assert (len(row["prompt_ids"]), len(row["response_ids"]), sum(row["response_mask"])) == (100, 9_950, 5_000)
    assert (row["rewards"][-1], sum(row["rewards"]), row["is_last_row"]) == (2.0, 2.0, True)

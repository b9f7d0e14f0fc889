"""agent tasks synth and check in a real sandbox: a set, the same one after an interruption, findings on bad tasks."""

import json
from pathlib import Path

import pytest

from agent.cli import main

pytestmark = [pytest.mark.bubblewrap, pytest.mark.torch]
SYNTH = ["--count", "2", "--seed", "11", "--mix", "torch#1:1,torch#2:1", "--target", "cpu", "--sandbox", "bubblewrap"]
SYNTH += ["--no-compile"]
SOFTMAX = """import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)

batch_size = 4096
dim = 393216

def get_inputs():
    return [torch.randn(batch_size, dim) * 3]

def get_init_inputs():
    return []
"""


def test_a_set_is_made_and_an_interrupted_one_goes_on_to_the_same_file(tmp_path: Path, capsys) -> None:
    path = tmp_path / "set.jsonl"
    assert main(["tasks", "synth", "-o", str(path), *SYNTH, "--json"]) == 0
    funnel = json.loads(capsys.readouterr().out)
    whole = path.read_bytes()
    rows = [json.loads(line) for line in whole.splitlines()]
    assert sorted(row["data_source"] for row in rows) == ["torch#1", "torch#2"]
    assert all({"ops", "data_source", "code", "sha256", "task_id", "about"} <= row.keys() for row in rows)
    assert funnel["kept"] == 2 and funnel["composed"] == 2 + sum(funnel["dropped"].values())
    times = [json.loads(line) for line in (tmp_path / "set.times.jsonl").read_text().splitlines()]
    assert all(row["eager_ms"] >= 1 for row in times)

    journal = tmp_path / "set.jsonl.journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:2]) + lines[2][:50])  # killed while it wrote
    path.unlink()
    assert main(["tasks", "synth", "-o", str(path), *SYNTH, "--json"]) == 0
    assert path.read_bytes() == whole
    capsys.readouterr()

    assert main(["tasks", "synth", "-o", str(path), *SYNTH[:3], "12", *SYNTH[4:]]) == 2
    assert "another synthesis: seed differ" in capsys.readouterr().err
    path.with_name("other.jsonl").write_text("mine\n")
    assert main(["tasks", "synth", "-o", str(path.with_name("other.jsonl")), *SYNTH]) == 2
    assert "other.jsonl exists" in capsys.readouterr().err


def test_a_task_that_is_too_large_is_admitted_in_other_sizes_and_a_bad_one_refused(tmp_path: Path, capsys) -> None:
    (tmp_path / "large.py").write_text(SOFTMAX)
    (tmp_path / "dropout.py").write_text(
        SOFTMAX.replace("393216", "64").replace("torch.softmax(x, dim=1)", "torch.nn.functional.dropout(x)")
    )
    (tmp_path / "broken.py").write_text("def f(:\n")
    sizes = tmp_path / "sizes"
    flags = ["--target", "cpu", "--sandbox", "bubblewrap", "--no-compile", "--json", "--write", str(sizes)]
    code = main(["tasks", "check", str(tmp_path), *flags])
    found = json.loads(capsys.readouterr().out)
    by_name = {one["task"]: one for one in found["tasks"]}
    assert code == 1 and found["counts"] == {"rescaled": 1, "refused": 1, "no task": 1}
    assert by_name["dropout"]["report"]["reasons"][0]["code"] == "task.nondeterministic"
    large = by_name["large"]
    assert large["report"]["reasons"][0]["code"] == "task.out_of_memory"
    assert large["rescaled"]["report"]["status"] == "admitted" and "dim 393216" in large["rescaled"]["sizes"]
    assert (sizes / "large.py").read_text() == large["rescaled"]["code"] != SOFTMAX

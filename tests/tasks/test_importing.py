"""Import, statistics and split of sets through the command line; nothing of a set is executed."""

import json
from pathlib import Path

import pytest

from agent.cli import main

MODEL = """import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, {out})

    def forward(self, x):
        return F.relu(self.linear(x)).sum({dims})

def get_inputs():
    return [torch.randn(4, 8)]

def get_init_inputs():
    return []
"""


def model(number: int) -> str:
    return MODEL.format(out=8 + number, dims="dim=-1" if number % 2 else "")


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["tasks", *arguments])
    return code, *capsys.readouterr()


def test_an_ops_6k_file_with_gaps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"ops": "['nn.Linear', 'F.relu']", "data_source": "torch#2", "code": model(0)},
        {"ops": "['nn.Linear']", "data_source": "torch#1"},
        {"code": model(1)},
        {"ops": "[]", "data_source": "torch#1", "code": 7},
    ]
    (tmp_path / "ops.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "in" / "set.jsonl"
    code, said, _ = run("import", str(tmp_path / "ops.jsonl"), "-o", str(out), "--json", capsys=capsys)
    report = json.loads(said)
    assert code == 1 and report["rows"] == 2
    assert [one["code"] for one in report["refused"]] == ["missing_column", "not_a_task"]
    assert any("1 rows had no ops" in note for note in report["notes"])
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert written[0]["ops"] == "['nn.Linear', 'F.relu']" and written[0]["data_source"] == "torch#2"
    assert written[1]["ops"] == ["torch.nn.Linear", "torch.nn.functional.relu"]
    assert written[1]["data_source"] == "torch#2" and written[1]["code"] == model(1)


def test_a_file_without_code_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ops.jsonl").write_text('{"ops": "[]", "data_source": "torch#1"}\n')
    code, _, error = run("import", str(tmp_path / "ops.jsonl"), "-o", str(tmp_path / "x.jsonl"), capsys=capsys)
    assert code == 2 and "no code" in error and not (tmp_path / "x.jsonl").exists()


def test_a_checkout_is_imported_with_its_levels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for level, name in (("level1", "2_B.py"), ("level1", "10_A.py"), ("level2", "1_C.py")):
        (tmp_path / "KernelBench" / level).mkdir(parents=True, exist_ok=True)
        (tmp_path / "KernelBench" / level / name).write_text(model(len(name)))
    out = tmp_path / "kb.jsonl"
    assert run("import", str(tmp_path), "-o", str(out), capsys=capsys)[0] == 0
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["task_id"] for row in written] == ["level1/2_B", "level1/10_A", "level2/1_C"]
    assert {row["data_source"] for row in written} == {"kernelbench/level1", "kernelbench/level2"}
    assert run("import", str(tmp_path), "-o", str(out), capsys=capsys)[0] == 2


def test_a_split_keeps_one_structure_together_and_is_stable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"task_id": f"t{number}", "code": model(number)} for number in range(20)]
    (tmp_path / "set.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    places = []
    for name in ("one", "two"):
        folder = tmp_path / name
        code, said, _ = run(
            "split", str(tmp_path / "set.jsonl"), "-o", str(folder), "--shares", "a:0.5,b:0.5", "--json", capsys=capsys
        )
        assert code == 0 and sum(part["rows"] for part in json.loads(said)["parts"]) == 20
        found = {
            path.stem: [json.loads(line)["task_id"] for line in path.read_text().splitlines()]
            for path in folder.iterdir()
        }
        places.append({task: part for part, tasks in found.items() for task in tasks})
    assert places[0] == places[1]
    for odd in (0, 1):
        assert len({places[0][f"t{number}"] for number in range(odd, 20, 2)}) == 1


def test_statistics_with_and_without_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from agent.tasks.task import text_sha256

    rows = [{"task_id": f"t{number}", "data_source": "torch#2", "code": model(number)} for number in range(4)]
    (tmp_path / "set.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, said, _ = run("stats", str(tmp_path / "set.jsonl"), "--json", capsys=capsys)
    found = json.loads(said)
    assert code == 0 and found["kinds"] == {"torch#2": {"tasks": 4, "percent": 100.0}}
    assert found["times_from"] == "not measured" and found["eager_ms"] is None and found["funnel"] is None
    times = [
        {
            "sha256": text_sha256(model(number)),
            "eager_ms": 2.0 + number,
            "compile_ms": 1.0,
            "device": "a machine",
            "how": "alone",
        }
        for number in range(4)
    ]
    (tmp_path / "set.times.jsonl").write_text("".join(json.dumps(row) + "\n" for row in times))
    (tmp_path / "set.funnel.json").write_text(json.dumps({"composed": 9, "kept": 4, "dropped": {"task.too_fast": 5}}))
    page = tmp_path / "set.html"
    code, said, _ = run("stats", str(tmp_path / "set.jsonl"), "--json", "--plot", str(page), capsys=capsys)
    found = json.loads(said)
    assert found["eager_ms"]["median"] == 3.5 and found["ratio"]["most"] == 5.0
    assert found["funnel"]["dropped"] == {"task.too_fast": 5} and found["times_from"] == "a machine alone"
    assert "torch#2" in page.read_text(encoding="utf-8")
    (tmp_path / "set.times.jsonl").write_text("nothing\n")
    code, _, error = run("stats", str(tmp_path / "set.jsonl"), capsys=capsys)
    assert code == 2 and "set.times.jsonl:1" in error

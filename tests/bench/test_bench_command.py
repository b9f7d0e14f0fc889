"""`agent bench` end to end: what is missing, rejected, gone on with; where submissions are looked for."""

import json
from pathlib import Path

import pytest

from agent.bench.baselines import ROWS
from agent.bench.bench import LOCK
from agent.bench.outcomes import FILE
from agent.bench.submissions import FolderSource, submission_sha256
from agent.cli import main
from agent.config import SandboxConfig
from agent.locks import locked
from agent.sandbox.open import check_bubblewrap
from agent.tasks.task import Task, text_sha256

MODEL = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * {factor}


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""


def suite(folder: Path) -> Path:
    for index, name in enumerate(("level1/1_First", "level1/2_Second", "level2/1_First")):
        path = folder / "KernelBench" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(MODEL.format(factor=index + 2))
    return folder


def task(name: str, text: str = MODEL.format(factor=2)) -> Task:
    return Task(path=Path("x.py"), name=name, text=text, sha256=text_sha256(text))


@pytest.mark.bubblewrap
def test_a_suite_is_judged_scored_and_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usable = check_bubblewrap(SandboxConfig())
    if not usable.usable:
        pytest.skip(usable.detail)
    (tmp_path / "mine" / "level1" / "1_First").mkdir(parents=True)
    (tmp_path / "elsewhere.py").write_text("class ModelNew: ...")
    (tmp_path / "mine" / "level1" / "1_First" / "model_new.py").symlink_to(tmp_path / "elsewhere.py")
    argv = ["bench", str(suite(tmp_path / "suite")), "-o", str(tmp_path / "out"), "--levels", "1"]
    argv += ["--submissions", str(tmp_path / "mine"), "--target", "cpu", "--sandbox", "bubblewrap", "--json"]
    assert main(argv) == 0
    report = json.loads(capsys.readouterr().out)
    assert [one["status"] for one in report["outcomes"]] == ["rejected", "missing"]
    assert report["outcomes"][0]["reasons"][0]["code"] == "load.submission"
    assert report["scores"][-1]["tasks"] == 2 and report["scores"][-1]["pass_rate"] == 0.0
    lines = (tmp_path / "out" / FILE).read_text()
    assert main(argv) == 0
    assert (tmp_path / "out" / FILE).read_text() == lines  # nothing was judged again
    capsys.readouterr()
    (tmp_path / "out" / FILE).write_text(lines.splitlines()[0] + "\n" + lines.splitlines()[1][:40])
    assert main(argv) == 0  # a torn line: that task alone is looked at again
    kept = (tmp_path / "out" / FILE).read_text().splitlines()
    assert kept[0] == lines.splitlines()[0] and json.loads(kept[-1])["task"] == "level1/2_Second"
    assert "level1/2_Second" in (tmp_path / "out" / "summary.md").read_text()


def test_what_is_judged_must_be_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = suite(tmp_path / "suite")
    assert main(["bench", str(given), "-o", str(tmp_path / "out")]) == 2
    assert main(["bench", str(given), "-o", str(tmp_path / "out"), "--reference", "--submissions", str(given)]) == 2
    assert "--submissions DIR, --reference" in capsys.readouterr().err
    argv = ["bench", str(given), "-o", str(tmp_path / "out"), "--submissions", str(given), "--levels", "4"]
    assert (
        main([*argv, "--target", "cpu", "--sandbox", "none", "--i-understand-this-runs-model-code-on-my-machine"]) == 2
    )
    assert "it has level1, level2" in capsys.readouterr().err


def test_submissions_are_found_by_id_and_by_name_where_that_is_unambiguous(tmp_path: Path) -> None:
    tasks = [task("level1/1_First"), task("level1/2_Second"), task("level2/1_First")]
    (tmp_path / "level2" / "1_First").mkdir(parents=True)
    (tmp_path / "level2" / "1_First" / "model_new.py").write_text("a")
    (tmp_path / "2_Second.py").write_text("b")
    (tmp_path / "1_First.py").write_text("of which level?")
    source = FolderSource.of(tmp_path, tasks)
    found = [source.find(one) for one in tasks]
    assert found == [None, tmp_path / "2_Second.py", tmp_path / "level2" / "1_First"]
    before = submission_sha256(found[2])
    (tmp_path / "level2" / "1_First" / "kernels").mkdir()
    (tmp_path / "level2" / "1_First" / "kernels" / "k.cu").write_text("c")
    assert submission_sha256(found[2]) != before and submission_sha256(None) == ""


def test_two_benches_in_one_folder_are_kept_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["bench", str(suite(tmp_path / "suite")), "-o", str(tmp_path / "out"), "--submissions", str(tmp_path)]
    argv += ["--target", "cpu", "--sandbox", "none", "--i-understand-this-runs-model-code-on-my-machine"]
    (tmp_path / "out").mkdir()
    with locked(tmp_path / "out" / LOCK) as held:
        assert held is not None
        assert main(argv) == 2
    assert "another bench works in" in capsys.readouterr().err
    assert not (tmp_path / "out" / FILE).exists()
    assert main(argv) == 0  # nothing was submitted: all tasks are missing
    assert capsys.readouterr().out.count("bench.no_submission") == 3


def test_files_that_are_no_tasks_are_said_and_counted_in_no_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = suite(tmp_path / "suite") / "KernelBench" / "level1"
    (given / "3_Broken.py").write_text("class Model(nn.Module:\n")
    (given / "4_Bytes.py").write_bytes(b"\xff\xfe class Model")
    (given / "5_Empty.py").write_text("")
    (given / "6_Gone.py").symlink_to(tmp_path / "nowhere.py")
    argv = ["bench", str(tmp_path / "suite"), "-o", str(tmp_path / "out"), "--submissions", str(tmp_path), "--json"]
    argv += ["--target", "cpu", "--sandbox", "none", "--i-understand-this-runs-model-code-on-my-machine"]
    assert main(argv) == 0
    told = capsys.readouterr()
    report = json.loads(told.out)
    assert report["scores"][-1]["tasks"] == 3
    names = {Path(one["where"]).name for one in report["no_task"]}
    assert names == {"3_Broken.py", "4_Bytes.py", "5_Empty.py", "6_Gone.py"}
    assert told.err.count("is no task") == 4
    assert "3_Broken.py" in (tmp_path / "out" / "summary.md").read_text()


@pytest.mark.torch
@pytest.mark.bubblewrap
def test_references_are_timed_and_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usable = check_bubblewrap(SandboxConfig())
    if not usable.usable:
        pytest.skip(usable.detail)
    folder = tmp_path / "suite" / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    # Views only: torch.compile has nothing to hand to a C++ compiler, which would take half a minute.
    views = MODEL.format(factor=2).replace("torch.relu(x) * 2", "x.t()")
    (folder / "1_View.py").write_text(views)
    (folder / "2_Raises.py").write_text(views.replace("return x.t()", "raise ValueError('no such shape')"))
    (folder / "3_Exits.py").write_text(views.replace("return x.t()", "import os; os._exit(3)"))
    argv = ["bench", str(tmp_path / "suite"), "-o", str(tmp_path / "out"), "--reference", "--target", "cpu"]
    argv += ["--sandbox", "bubblewrap", "--json", "--workers", "2"]
    assert main(argv) == 1
    report = json.loads(capsys.readouterr().out)
    view, raises, exits = report["rows"]
    assert view["status"] == "measured" and 0 < view["eager_ms"] < 50 and view["rounds"] >= 3
    assert view["ratio_quartiles"][0] <= view["ratio"] <= view["ratio_quartiles"][1]
    assert (raises["code"], raises["detail"]) == ("task.raises", "ValueError: no such shape")
    assert exits["code"] == "task.exits"
    (level,) = report["levels"]
    assert (level["tasks"], level["measured"], level["failed"]) == (3, 1, 2)
    rows = tmp_path / "out" / "rows" / ROWS
    before = rows.read_text()
    assert main([*argv, "--limit", "1"]) == 0 and rows.read_text() == before  # nothing was measured again
    assert "| level1/1_View |" in (tmp_path / "out" / "baselines.md").read_text()
    rows.write_text(before[:40])
    capsys.readouterr()
    assert main([*argv, "--limit", "1"]) == 0  # a torn line: it is measured again
    assert json.loads(capsys.readouterr().out)["rows"][0]["status"] == "measured"

"""`agent bench` end to end: what is missing, rejected, gone on with; where submissions are looked for."""

import json
from pathlib import Path

import pytest

from agent.bench.outcomes import FILE
from agent.bench.submissions import FolderSource, ReferenceSource, submission_sha256
from agent.cli import main
from agent.config import SandboxConfig
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


def test_a_reference_becomes_its_own_submission(tmp_path: Path) -> None:
    path = ReferenceSource(tmp_path).find(task("a"))
    assert path is not None
    assert path.read_text() == MODEL.format(factor=2) + "\n\nclass ModelNew(Model):\n    pass\n"

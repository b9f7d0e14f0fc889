"""A submission is copied clean before it is judged; what cannot be copied is rejected without a sandbox."""

import os
from pathlib import Path

import pytest

from agent.config import JudgeConfig, load_config
from agent.errors import ConfigError
from agent.judging import target
from agent.judging.judge import is_trouble, judge_submission
from agent.judging.reports import Reason, Verdict
from agent.judging.submission import prepare_workspace
from agent.judging.target import resolve_target
from agent.tasks.task import load_task
from agent.ui.judge import submission_paths

GELU = load_task(Path(__file__).parents[1] / "loop" / "gelu" / "model.py")


def test_only_the_submission_comes_along(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "kernels").mkdir(parents=True)
    for name in ("model_new.py", "model.py", "notes.txt", "kernels/a.cpp", "kernels/a.so"):
        (work / name).write_text(name)
    os.symlink("/etc/passwd", work / "link")
    clean = prepare_workspace(work, tmp_path / "clean")
    assert sorted(str(p.relative_to(clean)) for p in clean.rglob("*") if p.is_file()) == [
        "kernels/a.cpp",
        "model_new.py",
    ]


def test_kernels_beside_model_new_belong_to_it(tmp_path: Path) -> None:
    for name in ("task.py", "model_new.py", "other.py"):
        (tmp_path / name).write_text("")
    names = [tmp_path / "task.py", tmp_path / "model_new.py"]
    assert submission_paths(names) == tuple(names)
    (tmp_path / "kernels").mkdir()
    assert submission_paths(names) == (names[0], tmp_path)
    assert submission_paths([names[0], tmp_path / "other.py"]) == (names[0], tmp_path / "other.py")


def test_a_single_file_is_a_submission(tmp_path: Path) -> None:
    (tmp_path / "fast one.py").write_text("x = 1\n")
    clean = prepare_workspace(tmp_path / "fast one.py", tmp_path / "clean")
    assert [p.name for p in clean.iterdir()] == ["model_new.py"]
    assert (clean / "model_new.py").read_text() == "x = 1\n"
    with pytest.raises(ConfigError, match="there is no submission at"):
        prepare_workspace(tmp_path / "none", tmp_path / "other")


def test_what_cannot_be_copied_is_rejected(tmp_path: Path) -> None:
    config = load_config(settings=["sandbox.kind=bubblewrap", "judge.target=cpu"])
    (tmp_path / "empty").mkdir()
    verdict = judge_submission(config, GELU, tmp_path / "empty")
    assert (verdict.verdict, verdict.reward, verdict.reasons[0].code) == ("rejected", -1, "load.submission")


@pytest.mark.parametrize(
    ("code", "trouble"), [("runtime.referee", True), ("task.no_tolerance", False), ("timing.clock", True)]
)
def test_only_a_stumbling_judge_is_asked_again(code: str, trouble: bool) -> None:
    reasons = (Reason(code=code, detail="x"),)
    verdict = Verdict(
        schema_version=1,
        verdict="error",
        correct=None,
        reward=None,
        reasons=reasons,
        target="cpu",
        policy="strict",
        precision="strict",
    )
    assert is_trouble(verdict) is trouble


def test_targets_are_taken_as_asked_for() -> None:
    assert resolve_target(JudgeConfig(target="cuda")) == "cuda"
    assert resolve_target(JudgeConfig(target="cpu")) == "cpu"


def test_auto_is_cuda_where_there_is_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "NVIDIA_CONTROL", tmp_path)
    assert resolve_target(JudgeConfig()) == "cuda"
    monkeypatch.setattr(target, "NVIDIA_CONTROL", tmp_path / "none")
    assert resolve_target(JudgeConfig()) == "cpu"

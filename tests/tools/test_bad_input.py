"""Broken and rude submissions and workspaces: each ends with a typed reason, in bounded time."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.torch

TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width))

    def forward(self, x):
        return torch.mm(x, self.weight)


def get_inputs():
    return [torch.randn(64, 96)]


def get_init_inputs():
    return [96]
"""
RIGHT = """
import os, sys, time
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, width))

    def forward(self, x):
        {first}
        return torch.mm(x, self.weight)
"""


def verified(
    folder: Path, submission: str | None = None, *, task: str = TASK, policy: str = "open", seconds: float = 60.0
) -> dict[str, Any]:
    """verify's report on a workspace, which must come in time."""
    folder.mkdir(exist_ok=True)
    if submission is not None:
        (folder / "model_new.py").write_text(submission)
    command = [sys.executable, "-I", str(ROOT / "tools" / "verify.py"), "--workspace", str(folder), "--target", "cpu"]
    done = subprocess.run(
        [*command, "--policy", policy],
        input=json.dumps({"model_py": task}),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def ends_as(report: dict[str, Any]) -> tuple[str, str]:
    return report["status"], report["reasons"][0]["code"]


@pytest.mark.parametrize(
    ("submission", "code"),
    [
        ("import torch\nraise RuntimeError('at import')\n", "load.import"),
        (RIGHT.format(first="pass").replace("(self, width)", "(self, width, depth)"), "load.constructor"),
        (RIGHT.format(first="os.kill(os.getpid(), 11)"), "runtime.crash"),
        (RIGHT.format(first="sys.exit(0)"), "runtime.exit"),
        (RIGHT.format(first="x = torch.empty(50_000_000_000).fill_(1.0)"), "runtime.oom"),
        (RIGHT.format(first="os.fork() or time.sleep(30)"), "tamper.process"),
        ("import os\nwhile os.fork(): pass\n" + RIGHT.format(first="pass"), "tamper.process"),
        ("\0not python", "load.syntax"),
    ],
    ids=["import", "constructor", "segfault", "exits", "200 GB", "forks", "fork bomb", "zero bytes"],
)
def test_a_rude_submission_is_named(tmp_path, submission, code):
    assert ends_as(verified(tmp_path / "w", submission)) == ("rejected", code)


def test_forward_that_prints_gigabytes_is_heard_by_nobody(tmp_path):
    loud = RIGHT.format(first="[os.write(number, b'{}' * 500_000) for number in (1, 1, 1)]; print('x' * 10_000_000)")
    assert verified(tmp_path / "w", loud)["status"] == "verified"


def test_forward_that_leaks_is_judged_like_any_other(tmp_path):
    leak = RIGHT.format(first="self.__dict__.setdefault('kept', []).append(bytearray(1 << 22))")
    assert verified(tmp_path / "w", leak)["status"] == "verified"


def test_forward_that_hangs_is_ended(tmp_path, monkeypatch):
    """With a limit of seconds: the real one is a minute, and nobody waits for it here."""
    tools = tmp_path / "tools"
    subprocess.run(["cp", "-r", str(ROOT / "tools"), str(tools)], check=True)
    limit = tools / "referee" / "correctness.py"
    text = limit.read_text()
    assert "FIRST_LIMIT_S: Final = 60.0" in text
    limit.write_text(text.replace("FIRST_LIMIT_S: Final = 60.0", "FIRST_LIMIT_S = 3.0"))
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    started = time.monotonic()
    hangs = RIGHT.format(first="time.sleep(1000)")
    assert ends_as(verified(tmp_path / "w", hangs)) == ("rejected", "runtime.timeout")
    assert time.monotonic() - started < 40


def test_a_workspace_without_a_regular_model_new(tmp_path):
    (tmp_path / "w").mkdir()
    (tmp_path / "elsewhere.py").write_text(RIGHT.format(first="pass"))
    os.symlink(tmp_path / "elsewhere.py", tmp_path / "w" / "model_new.py")
    assert ends_as(verified(tmp_path / "w")) == ("rejected", "load.no_model_new")


def test_a_link_among_the_sources_is_refused(tmp_path):
    kernels = tmp_path / "w" / "kernels"
    kernels.mkdir(parents=True)
    os.symlink("/etc/passwd", kernels / "a.cpp")
    assert ends_as(verified(tmp_path / "w", RIGHT.format(first="pass"))) == ("rejected", "build.symlink")


def test_an_empty_kernels_folder_is_no_fault_nor_is_a_linked_folder_in_it(tmp_path):
    (tmp_path / "w" / "kernels").mkdir(parents=True)
    os.symlink("/usr/include", tmp_path / "w" / "kernels" / "headers")
    assert verified(tmp_path / "w", RIGHT.format(first="pass"))["status"] == "verified"


def test_files_named_like_modules_are_imported_by_nobody(tmp_path):
    trap = "open('/tmp/trap-was-run', 'w').close()\nraise SystemExit(3)\n"
    for folder in (tmp_path / "w", tmp_path / "w" / "kernels"):
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("torch.py", "json.py", "sitecustomize.py", "referee.py"):
            (folder / name).write_text(trap.replace("/tmp/", f"{tmp_path}/"))
    assert verified(tmp_path / "w", RIGHT.format(first="pass"))["status"] == "verified"
    assert not (tmp_path / "trap-was-run").exists()


def test_a_workspace_that_cannot_be_written_is_enough(tmp_path):
    work = tmp_path / "w"
    (work / "kernels").mkdir(parents=True)
    (work / "model_new.py").write_text(RIGHT.format(first="pass"))
    for folder in (work / "kernels", work):
        folder.chmod(0o555)
    before = sorted(path.name for path in work.rglob("*"))
    assert verified(work)["status"] == "verified"
    assert sorted(path.name for path in work.rglob("*")) == before


@pytest.mark.parametrize(
    ("first", "code"),
    [
        ("torch.empty(1 << 45)", "task.out_of_memory"),
        ("import os; os.kill(os.getpid(), 9)", "task.out_of_memory"),
    ],
    ids=["memory", "killed"],
)
def test_a_reference_that_fails_is_not_the_submissions_fault(tmp_path, first, code):
    task = TASK.replace("        return torch.mm", f"        {first}\n        return torch.mm")
    assert ends_as(verified(tmp_path / "w", RIGHT.format(first="pass"), task=task)) == ("error", code)


def test_a_number_that_depends_on_weights_is_the_tasks_fault(tmp_path):
    task = TASK.replace("return torch.mm(x, self.weight)", "return torch.mm(x, self.weight), float(self.weight[0, 0])")
    honest = RIGHT.format(first="pass").replace(
        "return torch.mm(x, self.weight)", "return torch.mm(x, self.weight), float(self.weight[0, 0])"
    )
    report = verified(tmp_path / "w", honest, task=task)
    assert [reason["code"] for reason in report["reasons"]] == ["task.outputs"]

"""verify.py, profiling.py and judge.py as they are called, on small submissions: right, wrong, broken and hostile."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from agent.judging.reports import ProfileReport, Verdict, VerifyReport
from tests.corpus import run as corpus

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
        return torch.tanh(torch.mm(x, self.weight) * 0.1)


def get_inputs():
    return [torch.randn(64, 96)]


def get_init_inputs():
    return [96]
"""
RIGHT = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, width))

    def forward(self, x):
        return torch.tanh_(torch.mm(x, self.weight).mul_(0.1))
"""


# torch.compile needs no C++ compiler for this one.
QUICK_TASK = TASK.replace("torch.tanh(torch.mm(x, self.weight) * 0.1)", "torch.mm(x, self.weight)")
QUICK = RIGHT.replace("torch.tanh_(torch.mm(x, self.weight).mul_(0.1))", "torch.mm(x, self.weight)")


def call(tool: str, folder: Path, submission: str | None, *flags: str, task: str = TASK) -> dict[str, Any]:
    """The report, which must be the only thing on standard output."""
    folder.mkdir(exist_ok=True)
    if submission is not None:
        (folder / "model_new.py").write_text(submission)
    command = [sys.executable, "-I", str(ROOT / "tools" / f"{tool}.py"), "--workspace", str(folder), "--target", "cpu"]
    done = subprocess.run(
        [*command, *flags],
        input=json.dumps({"model_py": task}),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def reasons(report: dict[str, Any]) -> list[str]:
    return [reason["code"] for reason in report["reasons"]]


def test_a_right_submission_is_verified_and_leaves_nothing_behind(tmp_path, monkeypatch):
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    report = call("verify", tmp_path / "w", RIGHT, "--policy", "open")
    parsed = VerifyReport.model_validate(report)
    assert parsed.status == "verified", parsed.reasons
    assert set(parsed.evidence["controls_rejected"]) == {
        "zeros", "constant", "previous_output", "lower_precision", "perturbed_weights",
    }  # fmt: skip
    assert list(scratch.iterdir()) == []
    assert os.listdir(tmp_path / "w") == ["model_new.py"]


def test_torch_operators_break_policy_strict(tmp_path):
    assert reasons(call("verify", tmp_path / "w", RIGHT)) == ["policy.torch_op"]


@pytest.mark.parametrize(
    ("submission", "code"),
    [
        (None, "load.no_model_new"),
        ("def broken(:\n", "load.syntax"),
        ("class Other: pass\n", "load.no_class"),
        (RIGHT.replace("self.weight", "self.kernel"), "load.state_dict"),
        (
            RIGHT.replace("torch.empty(width, width)", "torch.empty(width, width, dtype=torch.float64)"),
            "load.state_dict",
        ),
        (RIGHT.replace("return torch.tanh_", "return 2 * torch.tanh_"), "numeric.mismatch"),
        (RIGHT.replace("return torch.tanh_", "raise KeyError('x')\n        return torch.tanh_"), "runtime.exception"),
        (RIGHT.replace("return torch.tanh_", "import os; os.abort()\n        return torch.tanh_"), "runtime.crash"),
        (RIGHT.replace("return torch.tanh_", "torch.empty(1 << 45)\n        return torch.tanh_"), "runtime.oom"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, submission, code):
    assert reasons(call("verify", tmp_path / "w", submission, "--policy", "open")) == [code]


def test_gigabytes_of_output_do_no_harm(tmp_path):
    loud = "import os, sys\nfor _ in range(300):\n    os.write(1, b'{}' * 500000)\n    print('x' * 100000)\n" + RIGHT
    assert call("verify", tmp_path / "w", loud, "--policy", "open")["status"] == "verified"


@pytest.mark.parametrize(
    ("task", "code"),
    [
        (TASK.replace("return torch.tanh", "raise ValueError('no')\n        return torch.tanh"), "task.raises"),
        (TASK.replace("class Model", "class Modell"), "task.no_model"),
        (TASK.replace("return torch.tanh(", "return 0 * torch.tanh("), "task.unjudgeable"),
        (TASK.replace("* 0.1)", "* 0.1) + torch.rand(64, 96)"), "task.nondeterministic"),
    ],
)
def test_a_task_that_cannot_be_judged_is_no_fault_of_the_submission(tmp_path, task, code):
    report = call("verify", tmp_path / "w", RIGHT, "--policy", "open", task=task)
    assert report["status"] == "error"
    assert reasons(report) == [code]


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="this machine has a GPU")
def test_without_a_gpu_target_cuda_is_an_error(tmp_path):
    folder = tmp_path / "w"
    folder.mkdir()
    (folder / "model_new.py").write_text(RIGHT)
    command = [sys.executable, "-I", str(ROOT / "tools" / "judge.py"), "--workspace", str(folder), "--target", "cuda"]
    done = subprocess.run(
        command, input=json.dumps({"model_py": TASK}), capture_output=True, text=True, timeout=60, check=False
    )
    verdict = Verdict.model_validate_json(done.stdout)
    assert (verdict.verdict, verdict.reward, verdict.reasons[0].code) == ("error", None, "task.no_cuda_device")


def test_a_verdict_has_times_and_a_reward(tmp_path):
    slow = QUICK.replace("return", "for _ in range(20): torch.mm(x, self.weight)\n        return")
    report = call("judge", tmp_path / "w", slow, "--policy", "open", "--budget-s", "1", task=QUICK_TASK)
    verdict = Verdict.model_validate(report)
    assert verdict.verdict == "accepted", verdict.reasons
    assert verdict.reward == 1
    assert verdict.speedup is not None
    assert verdict.speedup["eager"].low <= verdict.speedup["eager"].ratio <= verdict.speedup["eager"].high
    timing = verdict.evidence["timing"]
    assert timing["compiled"]["graphs"] >= 1
    assert len(timing["rounds_us"]["submission"]) >= 6
    assert len(json.dumps(verdict.model_dump(mode="json"))) < 1 << 20


def test_profiling_finds_a_stale_output_in_the_timed_batches(tmp_path):
    replay = textwrap.dedent("""
        import torch
        from torch import nn

        class ModelNew(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.weight = nn.Parameter(torch.empty(width, width))
                self.calls, self.kept = 0, None

            def forward(self, x):
                self.calls += 1
                if self.calls < 30 or self.kept is None:
                    self.kept = torch.mm(x, self.weight)
                return self.kept.clone()
    """)
    told = call("profiling", tmp_path / "w", replay, "--policy", "open", "--budget-s", "1", task=QUICK_TASK)
    report = ProfileReport.model_validate(told)
    assert report.status == "rejected"
    assert report.reasons[0].code == "replay.stale_output"
    assert report.speedup is None


FAST = (
    "ptrace-the-parent",
    "forged-reply",
    "harness-loop-replaced",
    "own-operator-wraps-torch",
    "numpy-does-the-product",
    "child-process-runs-torch",
    "child-computes-before-the-call",
    "wakes-before-the-call",
    "honest-complex-and-double",
)


@pytest.mark.parametrize("case", corpus.cases_in([corpus.OWN], only=FAST), ids=lambda case: case.name)
def test_some_of_the_corpus(case):
    report, seconds = corpus.judge_here(case, corpus.Settings(), tool="verify")
    result = corpus.outcome(case, report, seconds)
    assert result.right, report["reasons"]

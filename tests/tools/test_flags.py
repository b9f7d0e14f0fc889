"""torch's precision flags: where they lie in memory, and what becomes of a submission or a task that changes them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tools.test_judging import QUICK, QUICK_TASK, call

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.torch

# In a process of its own: the flags are the whole process's.
PROGRAM = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import torch
from referee import flags, worker

start = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, torch.backends.fp32_precision
places = flags.places_from(flags.find())
kept = start == (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, torch.backends.fp32_precision)
memory = os.open("/proc/self/mem", os.O_RDONLY)
worker.set_precision(sys.argv[2])
before = flags.read(memory, places)
exec(sys.argv[3])
print(json.dumps({"kept": kept, "before": before, "changes": flags.changes(before, flags.read(memory, places))}))
"""
ENDURING = QUICK.replace(
    "        super().__init__()\n", '        super().__init__()\n        torch.set_float32_matmul_precision("medium")\n'
)
PASSING = QUICK.replace(
    "        return torch.mm(x, self.weight)",
    '        torch.set_float32_matmul_precision("medium")\n'
    "        y = torch.mm(x, self.weight)\n"
    '        torch.set_float32_matmul_precision("highest")\n'
    "        return y",
)
COMPILED = QUICK.replace(
    "    def forward(self, x):\n        return torch.mm(x, self.weight)",
    "        self.product = torch.compile(torch.mm, fullgraph=True)\n\n"
    "    def forward(self, x):\n        return self.product(x, self.weight)",
)


def found(change: str, *, precision: str = "strict") -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM, str(ROOT / "tools"), precision, change],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_all_flags_are_found_and_left_as_they_were() -> None:
    report = found("pass")
    assert report["kept"]
    assert not report["changes"]
    assert report["before"]["float32_matmul_precision"] == "highest"
    assert report["before"]["fp32_precision of mkldnn matmul"] == "ieee"
    assert set(report["before"].values()) == {"highest", "ieee", "False"}


@pytest.mark.parametrize(
    "change",
    [
        "torch.set_float32_matmul_precision('high')",
        "torch.set_float32_matmul_precision('medium')",
        "torch.backends.fp32_precision = 'bf16'",
        "torch.backends.mkldnn.fp32_precision = 'bf16'",
        "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'",
        "torch.backends.mkldnn.conv.fp32_precision = 'tf32'",
        "torch.backends.mkldnn.rnn.fp32_precision = 'bf16'",
        "torch.backends.cudnn.allow_tf32 = True",
        "torch.backends.cudnn.conv.fp32_precision = 'tf32'",
        "torch.backends.cuda.matmul.allow_tf32 = True",
        "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = True",
        "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True",
        "torch.backends.cuda.matmul.allow_fp16_accumulation = True",
        "torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)",
    ],
)
def test_a_change_of_any_flag_shows_in_memory(change: str) -> None:
    assert "the judge set" in found(change)["changes"]


@pytest.mark.parametrize(
    ("precision", "setting"),
    [
        ("strict", "torch.set_float32_matmul_precision('highest'); torch.backends.cudnn.allow_tf32 = False"),
        ("strict", "torch.backends.fp32_precision = 'ieee'"),
        ("strict", "torch.set_float32_matmul_precision('medium'); torch.set_float32_matmul_precision('highest')"),
        ("tf32", "torch.set_float32_matmul_precision('high'); torch.backends.cudnn.allow_tf32 = True"),
        ("bf16", "torch.backends.cuda.matmul.allow_tf32 = True"),
    ],
)
def test_setting_what_is_in_force_is_no_change(precision: str, setting: str) -> None:
    assert not found(setting, precision=precision)["changes"]


# In force for moments only, set back by a thread while the product runs: found by chance alone, and not tried here.
@pytest.mark.parametrize("submission", [ENDURING, PASSING], ids=["for good", "inside forward"])
def test_a_submission_that_changes_a_flag_is_rejected(tmp_path: Path, submission: str) -> None:
    task = QUICK_TASK.replace("torch.randn(64, 96)", "torch.randn(2048, 1024)").replace("[96]", "[1024]")
    report = call("verify", tmp_path, submission, "--policy", "open", task=task)
    assert [reason["code"] for reason in report["reasons"]] == ["numeric.precision_flag"], report
    assert "float32_matmul_precision is medium" in report["reasons"][0]["detail"]


def test_a_task_that_changes_a_flag_is_refused(tmp_path: Path) -> None:
    task = QUICK_TASK.replace("class Model", 'torch.set_float32_matmul_precision("high")\n\n\nclass Model')
    report = call("verify", tmp_path, QUICK, "--policy", "open", task=task)
    assert [reason["code"] for reason in report["reasons"]] == ["task.precision_flag"], report


@pytest.mark.skipif(os.environ.get("CXX") is None and not Path("/usr/bin/g++").exists(), reason="needs a C++ compiler")
def test_the_compiler_may_be_used_and_the_flags_are_told(tmp_path: Path) -> None:
    report = call("verify", tmp_path, COMPILED, "--policy", "open", task=QUICK_TASK)
    assert report["status"] == "verified", report
    assert report["evidence"]["precision_flags"]["float32_matmul_precision"] == "highest"

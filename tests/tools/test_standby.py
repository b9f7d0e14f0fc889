"""`--await`: the trusted side is prepared before there is a submission."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.torch

TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * 0.5


def get_inputs():
    return [torch.randn(64, 96)]


def get_init_inputs():
    return []
"""
SUBMISSION = TASK.split("def get_inputs")[0].replace("class Model", "class ModelNew")


def test_a_submission_that_comes_later_is_verified(tmp_path):
    workspace, awaited = tmp_path / "workspace", tmp_path / "there"
    workspace.mkdir()
    command = [sys.executable, "-I", str(ROOT / "tools/verify.py"), "--workspace", str(workspace), "--target", "cpu"]
    with subprocess.Popen(
        [*command, "--policy", "open", "--await", str(awaited)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as waiting:
        waiting.stdin.write(json.dumps({"model_py": TASK}).encode())
        waiting.stdin.close()
        time.sleep(1.0)
        assert waiting.poll() is None
        (workspace / "model_new.py").write_text(SUBMISSION)
        awaited.touch()
        report = json.loads(waiting.stdout.read())
    assert (report["status"], report["reasons"]) == ("verified", [])
    assert report["evidence"]["marks_s"]["awaited"] > 0

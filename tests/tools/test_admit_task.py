"""admit_task.py as it is called: what it says about honest tasks, defective ones and hostile ones, many in one call."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent.tasks.admission.examiner import CandidateReport

ROOT = Path(__file__).resolve().parents[2]
FORM = """import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def task(forward: str, *, init: str = "pass", inputs: str = "torch.randn(256, 512)", more: str = "") -> str:
    return FORM.format(forward=f"return {forward}", init=init, inputs=inputs) + more


LINEAR = "self.linear = nn.Linear(512, 64)"
NORM = "self.norm = nn.LayerNorm(512); self.norm.weight.data.normal_(); self.norm.bias.data.normal_()"
ADMITTED = {
    "matmul": task("torch.matmul(x, self.weight)", init="self.weight = nn.Parameter(torch.randn(512, 32))"),
    "linear-gelu": task("F.gelu(self.linear(x))", init=LINEAR),
    "norm": task("self.norm(x)", init=NORM),
    "softmax": task("torch.softmax(x, dim=-1)", inputs="torch.randn(512, 40)"),
    "mean": task("x.mean(dim=-1)"),
    "conv": task("self.conv(x)", init="self.conv = nn.Conv2d(3, 8, 3)", inputs="torch.randn(2, 3, 24, 24)"),
    "argmax": task("x.argmax(dim=-1)"),
}
REFUSED = {
    "dropout": (task("F.dropout(x, 0.5)"), "task.nondeterministic"),
    "noise": (task("x + torch.randn_like(x)"), "task.nondeterministic"),
    "same-inputs": (task("x * 2", inputs="torch.ones(64, 64)"), "task.constant_inputs"),
    "input-without-effect": (
        task("x[0]", inputs="[torch.randn(64, 64), torch.randn(64, 64)]").replace("return x[0]", "return x[0] * 2.0"),
        "task.ignores_inputs",
    ),
    "no-input": (task("torch.ones(64, 64) * 3 + 0 * x.sum()"), "task.ignores_inputs"),
    "max-minus-mean": (
        task("F.gelu(m - m.mean(dim=1, keepdim=True))").replace(
            "return F", "m = x.amax(dim=1, keepdim=True); return F"
        ),
        "task.ignores_inputs",
    ),
    "min-then-clamp": (task("torch.clamp(torch.minimum(x, torch.zeros(())), 0.0, 1.0)"), "task.ignores_inputs"),
    "mean-of-norm": (task("F.layer_norm(x, (512,)).mean(dim=-1)"), "task.tiny_output"),
    "tiny": (task("torch.softmax(x, dim=-1)", inputs="torch.rand(64, 8192)"), "task.tiny_output"),
    "nan": (task("torch.log(-x.abs())"), "task.not_finite"),
    "weights-without-effect": (task("x * 2 + 0 * self.linear(x).sum()", init=LINEAR), "task.unjudgeable"),
    "exit": ("import sys\nsys.exit(3)\n" + task("x"), "task.exits"),
    "hard-exit": ("import os\nos._exit(3)\n" + task("x"), "task.exits"),
    "crash": ("import os\nos.abort()\n" + task("x"), "task.crashes"),
    "fork": ("import os\nos.fork()\n" + task("x.exp()"), "task.starts_processes"),
    "sleeper": (
        "import os, time\nif os.fork() == 0:\n    time.sleep(600)\n" + task("x.exp()"),
        "task.starts_processes",
    ),
    "gpu": (task("x.cuda() * 2"), "task.needs_gpu"),
    "memory": (task("x.sum() + torch.zeros(500 << 30, dtype=torch.uint8)[0]"), "task.out_of_memory"),
    "network": (
        "import urllib.request\nurllib.request.urlopen('http://weights.invalid/model.bin')\n" + task("x"),
        "task.needs_network",
    ),
    "no-module": ("import no_such_module\n" + task("x"), "task.raises"),
    "no-python": ("def f(:\n" + task("x"), "task.syntax"),
    "loop": (task("x", more="\nwhile True: pass\n"), "task.hangs"),
}


TWICE = """

def twice(self, x):
    return x * 2.5 if torch.compiler.is_compiling() else x * 2.0


Model.twice = twice
"""
UNCOMPILED = """

import torch._dynamo

Model.forward = torch._dynamo.disable(Model.forward)
"""


def admit(texts: dict[str, str], *flags: str) -> dict[str, CandidateReport]:
    argv = [sys.executable, "-I", str(ROOT / "tools" / "admit_task.py"), "--target", "cpu", "--low-ms", "0", *flags]
    lines = "".join(json.dumps({"id": id, "model_py": text}) + "\n" for id, text in texts.items())
    done = subprocess.run(argv, input=lines, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    found = [CandidateReport.model_validate(json.loads(line)) for line in done.stdout.splitlines()]
    assert sorted(report.id for report in found) == sorted(texts)
    return {report.id: report for report in found}


@functools.cache
def reports() -> dict[str, CandidateReport]:
    """All cases in one call: each runs in a process of its own, and what one does must not touch the others."""
    texts = ADMITTED | {name: text for name, (text, _) in REFUSED.items()}
    return admit(texts, "--no-compile", "--timeout-s", "25")


@pytest.mark.torch
@pytest.mark.parametrize("name", ADMITTED)
def test_plain_tasks_are_admitted(name: str) -> None:
    report = reports()[name]
    assert report.status == "admitted", (report.code, report.detail)
    assert report.facts["eager_ms"] > 0 and report.facts["compulsory_bytes"] > 0
    assert report.flags == ()


@pytest.mark.torch
@pytest.mark.parametrize("name", REFUSED)
def test_defective_and_hostile_ones_are_refused_with_the_reason(name: str) -> None:
    report = reports()[name]
    assert (report.status, report.code) == ("refused", REFUSED[name][1]), report.detail
    assert report.detail and "\n" not in report.detail


@pytest.mark.torch
def test_torch_compile_must_agree_and_lost_work_is_flagged() -> None:
    texts = {
        "good": task("F.gelu(self.linear(x))", init=LINEAR),
        "lost": task("torch.relu(torch.sigmoid(x)) + 1.0"),
        "unused": task("x * 3.0").replace("return x", "y = self.linear(x); return x").replace("pass", LINEAR),
        "breaks": task("self.twice(x)", more=TWICE),
        "uncompiled": task("x * 2.0", more=UNCOMPILED),
    }
    found = admit(texts, "--timeout-s", "120", "--flagged-uncompiled")
    assert found["good"].status == "admitted", found["good"].detail
    assert found["good"].facts["graphs"] == 1 and found["good"].facts["compile_ms"] > 0
    assert found["good"].facts["flops"] == 2 * 256 * 512 * 64
    assert found["good"].facts["stage_cpu_seconds"]["compile"] > 0
    assert [flag.code for flag in found["lost"].flags] == ["task.lost_work"]
    assert found["lost"].status == "admitted" and "compile_ms" not in found["lost"].facts
    assert found["unused"].code == "task.unjudgeable"
    assert found["breaks"].code == "task.compile_differs"
    assert found["uncompiled"].code == "task.not_compiled"


@pytest.mark.torch
def test_times_decide_where_they_are_asked_for() -> None:
    small = task("x * 2.0", inputs="torch.randn(8, 8)")
    slow = task("x", more="\nimport time\nModel.forward = lambda self, x: (time.sleep(0.3), x * 2.0)[1]\n")
    found = admit({"small": small, "slow": slow}, "--no-compile", "--low-ms", "1", "--high-ms", "100")
    assert found["small"].code == "task.too_fast" and found["slow"].code == "task.too_slow"

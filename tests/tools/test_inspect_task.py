"""inspect_task.py as it is called: what it says about good tasks and about every way to be none."""

import hmac
import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent.judging.reports import TaskReport

ROOT = Path(__file__).resolve().parents[2]
GOOD = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x, factor):
        return torch.relu(x * self.weight) * factor, (x > 0).sum(dim=-1)


def get_inputs():
    return [torch.randn(4, 6).t().contiguous().t(), 2.0]


def get_init_inputs():
    return [6]
"""
RETURN = "        return torch.relu(x * self.weight) * factor, (x > 0).sum(dim=-1)\n"
INPUTS = "    return [torch.randn(4, 6).t().contiguous().t(), 2.0]\n"


def inspect(text: str, *flags: str) -> TaskReport:
    argv = [sys.executable, "-I", str(ROOT / "tools" / "inspect_task.py"), "--target", "cpu", *flags]
    done = subprocess.run(argv, input=json.dumps({"model_py": text}), capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return TaskReport.model_validate(json.loads(done.stdout))


@pytest.mark.torch
def test_a_good_task_is_described() -> None:
    report = inspect(GOOD)
    assert (report.status, report.reasons) == ("ok", ())
    summary = report.summary
    first, second = summary["inputs"]
    assert (first["shape"], first["stride"], first["dtype"], first["bytes"]) == ([4, 6], [1, 4], "float32", 96)
    assert (second["type"], second["value"]) == ("float", "2.0")
    assert [(o["path"], o["shape"], o["dtype"]) for o in summary["outputs"]] == [
        ("[0]", [4, 6], "float32"),
        ("[1]", [4], "int64"),
    ]
    assert [(s["path"], s["dtype"]) for s in summary["state_dict"]] == [("weight", "float32"), ("steps", "int64")]
    assert summary["parameter_count"] == 6
    assert summary["inputs_random"] and not summary["mutates_inputs"] and summary["eager_ms"] > 0


@pytest.mark.torch
def test_what_a_task_prints_does_not_reach_the_report() -> None:
    noise = "import os\nprint('{\"status\": \"ok\"}', flush=True)\nos.write(1, b'x' * 1000000)\nos.write(2, b'y')\n"
    assert inspect(noise + GOOD).status == "ok"


@pytest.mark.torch
def test_mutation_and_fixed_inputs_are_noted() -> None:
    text = GOOD.replace(RETURN, "        x.add_(1.0)\n        return x * self.weight * factor\n")
    text = text.replace(INPUTS, "    return [torch.ones(4, 6), 2.0]\n")
    report = inspect(text)
    assert report.status == "ok"
    assert report.summary["mutates_inputs"] is True and report.summary["inputs_random"] is False


CASES = {
    "task.syntax": (GOOD.replace("def get_inputs():", "def get_inputs(:"), "line 15"),
    "task.no_model": (GOOD.replace("class Model(", "class Modell("), "class Model"),
    "task.no_get_inputs": (GOOD.replace("def get_inputs", "def inputs"), "get_inputs"),
    "task.no_get_init_inputs": (GOOD.replace("def get_init_inputs", "def init_inputs"), "get_init_inputs"),
    "task.raises": (
        GOOD.replace(RETURN, "        raise ValueError('wrong\\nshape')\n"),
        "ValueError: wrong shape (model.py line 12)",
    ),
    "task.no_tensors": (GOOD.replace(RETURN, "        return 3.0\n"), "float"),
    "task.bad_inputs": (GOOD.replace(INPUTS, "    return torch.ones(3)\n"), "Tensor"),
    "task.bad_init_inputs": (GOOD.replace("return [6]", "return 6"), "int"),
    "task.nondeterministic": (
        GOOD.replace("torch.relu(x * self.weight)", "torch.dropout(x, 0.5, True)"),
        "same inputs",
    ),
    "task.ignores_inputs": (GOOD.replace(RETURN, "        return self.weight * factor\n"), "very same output"),
    "task.not_finite": (GOOD.replace(RETURN, "        return x / 0.0 - x / 0.0\n"), "finite"),
    "task.out_of_memory": (GOOD.replace(RETURN, "        return torch.ones(1 << 46) * x.sum()\n"), "line 12"),
    "task.exits": (GOOD.replace(RETURN, "        import os\n        os._exit(0)\n"), "during forward"),
    "task.crashes": (GOOD.replace(RETURN, "        import os\n        os.abort()\n"), "SIGABRT during forward"),
    "task.hangs": (GOOD.replace(RETURN, "        while True: pass\n"), "forward did not end"),
}


@pytest.mark.torch
@pytest.mark.parametrize("code", CASES)
def test_what_is_no_task_says_why(code: str) -> None:
    text, words = CASES[code]
    report = inspect(text, "--timeout-s", "12")
    assert (report.status, [reason.code for reason in report.reasons]) == ("invalid", [code])
    assert words in report.reasons[0].detail and "\n" not in report.reasons[0].detail
    assert report.summary == {}


@pytest.mark.torch
def test_failures_at_import_and_in_the_constructor_name_their_line() -> None:
    at_import = inspect(GOOD.replace("import torch.nn as nn", "import torch.nn as nn, no_such_module"))
    assert "import of model.py raises ModuleNotFoundError" in at_import.reasons[0].detail
    assert "line 2" in at_import.reasons[0].detail
    leaves = inspect("import sys\nsys.exit('enough')\n" + GOOD)
    assert leaves.reasons[0].code == "task.exits" and "line 2" in leaves.reasons[0].detail
    constructor = inspect(GOOD.replace("return [6]", "return [6, 7]"))
    assert constructor.reasons[0].code == "task.raises" and "Model(*get_init_inputs())" in constructor.reasons[0].detail


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"model_py": 3}'])
def test_standard_input_must_hold_the_text(text: str) -> None:
    argv = [sys.executable, "-I", str(ROOT / "tools" / "inspect_task.py"), "--target", "cpu"]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=60)
    report = TaskReport.model_validate(json.loads(done.stdout))
    assert done.returncode == 0 and report.status == "error" and report.reasons[0].code == "task.stdin"


@pytest.mark.torch
def test_the_report_is_signed_with_the_key_that_came_on_stdin_and_the_task_cannot_find_it() -> None:
    key = bytes(range(32))
    hunting = f"""
import os, sys
sys.path.insert(0, {str(ROOT / "tools")!r})
from referee import confine
confine.drop_capabilities()  # root's, which no sandbox has
parent = os.getppid()
for name in ("mem", "environ", "fd/0", "fd/1", "maps"):
    try:
        open(f"/proc/{{parent}}/{{name}}", "rb").read(1)
    except PermissionError:
        continue
    raise RuntimeError(f"{{name}} could be opened")
"""
    argv = [sys.executable, "-I", str(ROOT / "tools" / "inspect_task.py"), "--target", "cpu"]
    asked = json.dumps({"model_py": hunting + GOOD, "report_key": key.hex()})
    done = subprocess.run(argv, input=asked, capture_output=True, text=True, timeout=120, check=True)
    signature, _, report = done.stdout.strip().partition(" ")
    assert hmac.compare_digest(signature, hmac.digest(key, report.encode(), "sha256").hex())
    assert json.loads(report)["status"] == "ok", report

"""time_tasks.py as it is called: other batch sizes where the first time lies outside, and tasks that take the process
with them cost their own row only."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
TOOL = Path(__file__).resolve().parents[2] / "tools" / "time_tasks.py"
FORM = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        {forward}


batch_size = {batch}


def get_inputs():
    return [torch.randn(batch_size, {width})]


def get_init_inputs():
    return []
"""


def row(name: str, forward: str, *, batch: int = 1, width: int = 512, twin: bool = True) -> dict[str, object]:
    code = FORM.format(forward=forward, batch=batch, width=width)
    return {"task_id": name, "code": code, "about": {"twin_sha256": "0" * 64 if twin else None}}


ROWS = (
    row("aborts", "__import__('os').abort()"),
    row("slow-twin", "__import__('time').sleep(0.015 * x.shape[0]); return x.double() + 1.0", batch=16),
    row("slow", "__import__('time').sleep(0.015 * x.shape[0]); return x + 1.0", batch=16, twin=False),
    row("hangs", "__import__('time').sleep(600)"),
    row("memory", "return torch.zeros(500 << 30, dtype=torch.uint8)"),
    row("in-band", "__import__('time').sleep(0.01); return x * 2.0", batch=64),
)


def run(path: Path, *flags: str) -> tuple[list[dict[str, object]], str]:
    argv = [sys.executable, "-I", str(TOOL), "--target", "cpu", "--timeout-s", "12", *flags]
    with path.open("rb") as file:
        done = subprocess.run(argv, stdin=file, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("times") / "set.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in ROWS))
    rows, said = run(path, "--no-compile")
    return path, rows, said


def test_every_task_gets_a_row_whatever_the_others_do(timed) -> None:
    _, rows, said = timed
    found = {str(one["task_id"]): one for one in rows}
    assert list(found) == [one["task_id"] for one in ROWS]
    assert "exit code" in str(found["aborts"]["error"]) and "no answer within 12 s" in str(found["hangs"]["error"])
    assert "RuntimeError" in str(found["memory"]["error"])
    assert "error" not in found["in-band"], found["in-band"]
    assert float(str(found["in-band"]["eager_ms"])) >= 10 and "batch_size" not in found["in-band"]
    assert "6 of 6 tasks: 2 in 1 to 100 ms, 1 outside, 3 failed; 1 with another batch size; 0 compiled" in said


def test_a_twin_gets_a_batch_size_for_which_the_time_lies_in_the_band(timed) -> None:
    _, rows, _ = timed
    twin, fixed = (next(one for one in rows if one["task_id"] == name) for name in ("slow-twin", "slow"))
    assert twin["tried"][0][0] == 16 and twin["tried"][0][1] >= 240
    assert twin["batch_size"] == 1 and 15 <= twin["eager_ms"] <= 85
    code = str(ROWS[1]["code"]).replace("batch_size = 16", "batch_size = 1")
    assert twin["resized_sha256"] == hashlib.sha256(code.encode()).hexdigest()
    assert fixed["eager_ms"] >= 240 and "batch_size" not in fixed


def test_a_later_call_goes_on_where_the_budget_ended(timed) -> None:
    path, rows, _ = timed
    earlier = path.with_name("times.jsonl")
    earlier.write_text("".join(json.dumps(one) + "\n" for one in rows[:5]) + json.dumps(rows[5])[:40])
    more, said = run(path, "--no-compile", "--skip", str(earlier))
    assert [one["task_id"] for one in more] == ["in-band"] and "6 of 6 tasks" in said
    few, said = run(path, "--no-compile", "--budget-s", "0.001")
    assert len(few) <= 1 and "stopped after 0.001 s" in said and f"{len(few)} of 6 tasks" in said

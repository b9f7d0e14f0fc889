"""Tools that were started ahead: what has no part of the submission is done before it comes."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
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


@contextlib.contextmanager
def started(tool: str, folder: Path, *flags: str) -> Iterator[subprocess.Popen]:
    command = [sys.executable, "-I", str(ROOT / f"tools/{tool}.py"), "--workspace", str(folder / "handed/submission")]
    command += ["--target", "cpu", "--policy", "open", "--signals", str(folder / "signals"), *flags]
    (folder / "signals").mkdir()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as waiting:
        waiting.stdin.write(json.dumps({"model_py": TASK}).encode())
        waiting.stdin.close()
        try:
            yield waiting
        finally:
            waiting.kill()


def come(folder: Path, name: str, waiting: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while not (folder / "signals" / name).exists():
        assert waiting.poll() is None and time.monotonic() < deadline, f"no {name}"
        time.sleep(0.02)


def hand_over(folder: Path, order: dict[str, str]) -> None:
    (folder / "handed/submission").mkdir(parents=True)
    (folder / "handed/submission/model_new.py").write_text(SUBMISSION)
    (folder / "signals/new").write_text(json.dumps(order))
    (folder / "signals/new").rename(folder / "signals/submission")


def test_a_submission_that_comes_later_is_verified(tmp_path):
    with started("standby", tmp_path, "--await", "submission") as waiting:
        time.sleep(1.0)
        assert waiting.poll() is None
        hand_over(tmp_path, {"tool": "verify"})  # while the baselines are being prepared, which it does not need
        report = json.loads(waiting.stdout.read())
    assert (report["tool"], report["status"], report["reasons"]) == ("verify", "verified", [])
    assert report["evidence"]["marks_s"]["oracle"] <= report["evidence"]["marks_s"]["awaited"]


def compilers_below(pid: int) -> list[int]:
    found = []
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        with contextlib.suppress(OSError):
            found += [child] if Path(f"/proc/{child}/comm").read_text().startswith("cc1plus") else []
            found += compilers_below(child)
    return found


def test_compilers_of_a_baseline_that_nobody_waits_for_are_not_the_submissions(tmp_path):
    with started("standby", tmp_path, "--await", "submission") as waiting:
        deadline = time.monotonic() + 120
        while not compilers_below(waiting.pid):
            assert waiting.poll() is None and time.monotonic() < deadline
            time.sleep(0.005)
        hand_over(tmp_path, {"tool": "verify"})
        report = json.loads(waiting.stdout.read())
    assert (report["status"], report["reasons"]) == ("verified", [])


def test_nothing_happens_on_a_device_before_it_is_there(tmp_path):
    with started("standby", tmp_path, "--await", "device", "--await", "submission", "--budget-s", "0") as waiting:
        come(tmp_path, "idle", waiting)
        time.sleep(0.3)
        assert not (tmp_path / "signals/prepared").exists()
        (tmp_path / "signals/device").write_text("{}")
        hand_over(tmp_path, {"tool": "profile"})
        report = json.loads(waiting.stdout.read())
    assert (report["tool"], report["status"], report["reasons"]) == ("profile", "profiled", [])
    marks = report["evidence"]["marks_s"]
    assert marks["device"] <= marks["oracle"] <= marks["awaited"]


def test_a_build_does_not_wait_for_the_device(tmp_path):
    (tmp_path / "handed/submission/kernels").mkdir(parents=True)
    (tmp_path / "handed/submission/model_new.py").write_text(SUBMISSION)
    (tmp_path / "handed/submission/kernels/broken.cpp").write_text("int registers_nothing;")
    with started("judge", tmp_path, "--await", "device") as waiting:
        verdict = json.loads(waiting.stdout.read())  # without the device's file
    assert not (tmp_path / "signals/idle").exists()
    assert verdict["verdict"] == "rejected"
    assert verdict["reasons"][0]["code"].startswith("build.")


def test_waiting_needs_a_folder(tmp_path):
    command = [sys.executable, "-I", str(ROOT / "tools/standby.py"), "--workspace", str(tmp_path), "--target", "cpu"]
    done = subprocess.run([*command, "--await", "submission"], input=b"{}", capture_output=True)
    assert (done.returncode, b"--signals" in done.stderr) == (2, True)

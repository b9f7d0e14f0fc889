"""The folder of an examination goes with its process, and the next one removes what a killed process left."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.tasks.admission.scratch import scratch_folder

HOLD = """
from agent.tasks.admission.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "inductor").mkdir()
    print(folder, flush=True)
    input()
"""


def test_a_killed_owner_leaves_nothing_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_AGENT_CACHE", str(tmp_path))
    argv = [sys.executable, "-c", HOLD]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        with scratch_folder() as mine:
            assert left.is_dir() and mine.is_dir() and mine != left
        assert not mine.exists() and left.is_dir()
        os.kill(process.pid, signal.SIGKILL)
    with scratch_folder() as mine:
        assert mine.is_dir() and not left.exists()
    assert list((tmp_path / "admission").iterdir()) == []

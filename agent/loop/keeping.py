"""Keeps the best verified submission of a run in best/, replaced as a whole, whatever the workspace becomes later."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.judging.submission import submission_sha256
from agent.sandbox.snapshot import copy_submission
from agent.trajectory.folder import RunFolder
from agent.trajectory.writer import record_error


def weakest_speedup(report: Mapping[str, Any]) -> float | None:
    """The smaller of the speed-ups over eager and torch.compile: a submission is as good as against its hardest rival.

    None where nothing was timed (verify).
    """
    speedups = report.get("speedup") or {}
    return min((float(speedup["ratio"]) for speedup in speedups.values()), default=None)


def keep_submission(folder: RunFolder, *, is_best: bool) -> str:
    """sha256 of the workspace's submission, which is now in best/ if `is_best`. Raises RecordError."""
    try:
        with tempfile.TemporaryDirectory(dir=folder.path, prefix=".snapshot-") as scratch:
            copy = Path(scratch) / "submission"
            copy_submission(folder.workspace, copy)
            sha256 = submission_sha256(copy)
            if is_best:
                _replace(folder.best, copy)
    except OSError as error:
        raise record_error(folder.best, error) from error
    return sha256


def workspace_sha256(workspace: Path) -> str | None:
    """sha256 of what would be submitted now; None without a model_new.py."""
    with tempfile.TemporaryDirectory(prefix="agent-submission-") as scratch:
        copy = Path(scratch) / "submission"
        copy_submission(workspace, copy)
        return submission_sha256(copy) if (copy / "model_new.py").is_file() else None


def restore_best(folder: RunFolder) -> None:
    """Finish or undo a replacement that a crash interrupted, and clear what it left."""
    previous = _previous(folder.best)
    if previous.exists() and not folder.best.exists():
        previous.rename(folder.best)
    for leftover in (*folder.path.glob(".snapshot-*"), previous):
        shutil.rmtree(leftover, ignore_errors=True)


def _replace(best: Path, copy: Path) -> None:
    previous = _previous(best)
    shutil.rmtree(previous, ignore_errors=True)
    if best.exists():
        best.rename(previous)
    copy.rename(best)
    shutil.rmtree(previous, ignore_errors=True)


def _previous(best: Path) -> Path:
    return best.with_name(".best-previous")

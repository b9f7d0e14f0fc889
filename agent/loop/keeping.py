"""Keeps the best verified submission of a run in best/, replaced as a whole, whatever the workspace becomes later."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.sandbox.snapshot import SnapshotError, copy_submission
from agent.trajectory.folder import RunFolder
from agent.trajectory.writer import record_error


def weakest_speedup(report: Mapping[str, Any]) -> float | None:
    """The smaller of the speed-ups over eager and torch.compile: a submission is as good as against its hardest rival.

    None where nothing was timed (verify).
    """
    speedups = report.get("speedup") or {}
    return min((float(speedup["ratio"]) for speedup in speedups.values()), default=None)


def keep_submission(folder: RunFolder, *, is_best: bool) -> str:
    """sha256 of the workspace's submission, which is now in best/ if `is_best`.

    Raises SnapshotError when there is nothing that can be copied, RecordError when it cannot be stored.
    """
    try:
        return copy_submission(folder.workspace, folder.best) if is_best else _hash(folder.workspace)
    except OSError as error:
        raise record_error(folder.best, error) from error


def submission_sha256(folder: Path) -> str | None:
    """sha256 of what would be submitted now; None where nothing can be."""
    try:
        return _hash(folder)
    except SnapshotError:
        return None


def restore_best(folder: RunFolder) -> None:
    """Finish a replacement that a crash interrupted, and clear what it left."""
    leftovers = sorted(folder.path.glob(f".{folder.best.name}.*"))
    for leftover in leftovers:
        if leftover.suffix == ".old" and not folder.best.exists():
            leftover.rename(folder.best)
        else:
            shutil.rmtree(leftover, ignore_errors=True)


def _hash(folder: Path) -> str:
    with tempfile.TemporaryDirectory(prefix="agent-submission-") as scratch:
        return copy_submission(folder, Path(scratch) / "submission")

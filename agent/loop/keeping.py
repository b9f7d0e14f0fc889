"""Keeps the best verified submission of a run in best/, replaced as a whole, whatever the workspace becomes later."""

import contextlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.loop.condense import Kept, read_files
from agent.loop.ledger import Ledger
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


def kept_in_view(folder: RunFolder, ledger: Ledger) -> Kept:
    """What a condensed conversation still shows: the best verified version, else what the workspace holds now."""
    if files := read_files(folder.best):
        changed = submission_sha256(folder.workspace) != ledger.best_sha256
        return Kept(files, best=True, speedup=ledger.best_speedup, changed=changed)
    with tempfile.TemporaryDirectory(prefix="agent-submission-") as scratch, contextlib.suppress(SnapshotError):
        # A copy: the workspace may hold links and worse.
        copy_submission(folder.workspace, Path(scratch) / "submission")
        return Kept(read_files(Path(scratch) / "submission"))
    return Kept()


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

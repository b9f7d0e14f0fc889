"""A submission made ready for the judge: a clean copy of model_new.py and kernels/ in a folder of its own."""

import shutil
from pathlib import Path
from typing import Final

from agent.errors import ConfigError
from agent.sandbox.snapshot import copy_submission

ENTRY: Final = "model_new.py"


def prepare_workspace(submission: Path, into: Path) -> Path:
    """A copy of a submission (a workspace folder, or a single model_new.py) at `into`; nothing else comes along.

    Raises ConfigError when there is nothing at `submission`, SnapshotError when a folder holds none that can be copied.
    """
    if submission.is_dir():
        copy_submission(submission, into)
        return into
    if not submission.is_file():
        raise ConfigError(f"there is no submission at {submission}")
    into.mkdir(parents=True)
    into.chmod(0o755)
    shutil.copyfile(submission, into / ENTRY)
    (into / ENTRY).chmod(0o644)
    return into

"""A submission as files: model_new.py and kernels/, made ready for the judge, and its identity."""

import hashlib
import shutil
from pathlib import Path
from typing import Final

from agent.errors import ConfigError
from agent.sandbox.snapshot import copy_submission

ENTRY: Final = "model_new.py"


def prepare_workspace(submission: Path, into: Path) -> Path:
    """A clean copy of a submission (a workspace folder, or a single model_new.py) at `into`; nothing else comes along.

    Raises ConfigError when there is nothing at `submission`.
    """
    if submission.is_dir():
        copy_submission(submission, into)
        return into
    if not submission.is_file():
        raise ConfigError(f"there is no submission at {submission}")
    into.mkdir(parents=True)
    shutil.copyfile(submission, into / ENTRY)
    return into


def submission_sha256(folder: Path) -> str:
    """Over names and contents of all regular files, so that equal hashes mean equal submissions."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            name = path.relative_to(folder).as_posix().encode("utf-8", "surrogateescape")
            total.update(b"%d:%s:%d:" % (len(name), name, path.stat().st_size))
            total.update(path.read_bytes())
    return total.hexdigest()

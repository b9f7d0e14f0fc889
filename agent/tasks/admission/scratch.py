"""The folder in which candidates run: torch.compile's cache of one examination, hundreds of megabytes, then removed.

A lock beside it says that its owner lives; what a killed process left is removed by the next one.
"""

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agent.config import cache_home
from agent.errors import RecordError
from agent.locks import FOREVER, locked
from agent.sandbox.mounts import remove_tree

FOLDER: Final = "admission"
LOCK: Final = ".lock"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder below the cache. Raises RecordError where none can be made."""
    home = cache_home() / FOLDER
    folder = home / uuid.uuid4().hex
    with contextlib.ExitStack() as held:
        try:
            home.mkdir(parents=True, exist_ok=True)
            _sweep(home)
            held.enter_context(locked(folder.with_suffix(LOCK), patience_s=FOREVER))
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise RecordError(f"cannot make a folder in {home}: {error.strerror}", full=True) from error
        try:
            yield folder
        finally:
            _remove(folder)


def _sweep(home: Path) -> None:
    for lock in home.glob(f"*{LOCK}"):
        with contextlib.suppress(OSError), locked(lock) as held:
            if held is not None:
                _remove(lock.with_suffix(""))


def _remove(folder: Path) -> None:
    remove_tree(folder)
    folder.with_suffix(LOCK).unlink(missing_ok=True)

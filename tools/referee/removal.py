"""Folders that foreign code writes into, and how they go away.

Covers: links are not followed, folders without rights are opened, and they may nest deeper than Python's own functions
call themselves (shutil.rmtree ends with RecursionError where 1000 folders lie in one another). Nothing raises. Not
covered: what still writes there meanwhile; it has to be ended first.
"""

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


def remove(folder: Path) -> None:
    """A folder and all below it."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if folder.is_dir() and not folder.is_symlink():
        for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            with contextlib.suppress(OSError):
                subprocess.run([*command, "--", folder], stdin=subprocess.DEVNULL, capture_output=True, check=False)


@contextlib.contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """A folder of its own below $TMPDIR, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield folder
    finally:
        remove(folder)

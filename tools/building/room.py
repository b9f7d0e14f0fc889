"""Whether a folder for builds or temporary files has room: without it compilers fail in silence, and a right submission
would be blamed.
"""

import errno
import shutil
from pathlib import Path
from typing import Final

LEAST_BYTES: Final = 64 << 20


def check(folder: Path) -> None:
    """Raises OSError (ENOSPC) with what to do. Not asked of tempfile, which moves on to the next folder in silence."""
    free = shutil.disk_usage(folder).free
    if free < LEAST_BYTES:
        raise OSError(
            errno.ENOSPC,
            f"{folder} has {free >> 20} MB left and {LEAST_BYTES >> 20} are needed: make room there, let another "
            "folder be used (TMPDIR, AGENT_BUILDS), or raise sandbox.tmp_gb",
        )

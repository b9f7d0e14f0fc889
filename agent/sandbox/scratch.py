"""The private folder of a sandbox on the host (its /tmp and what is made up for it), with a note of who owns it."""

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from agent.errors import SandboxError
from agent.sandbox.labels import owner_labels
from agent.sandbox.mounts import remove_tree

SCRATCH_PREFIX: Final = "cuda-agent-sandbox-"
OWNER_FILE: Final = "owner.json"


def make_scratch(labels: Mapping[str, str]) -> Path:
    """A new folder with tmp/home in it; `labels` are added to the owner's. Raises SandboxError (disk full)."""
    scratch: Path | None = None
    try:
        scratch = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX))
        (scratch / OWNER_FILE).write_text(json.dumps(owner_labels() | dict(labels)), encoding="utf-8")
        (scratch / "tmp" / "home").mkdir(parents=True)
    except OSError as error:
        if scratch is not None:  # without its owner's name nobody would ever remove it
            shutil.rmtree(scratch, ignore_errors=True)
        where = tempfile.gettempdir()
        raise SandboxError(f"cannot make a folder in {where}: {error.strerror}", hint="free disk space") from error
    return scratch


def scratch_folders() -> list[tuple[Path, dict[str, str]]]:
    """All such folders of this user on this machine, with their owner's labels."""
    found: list[tuple[Path, dict[str, str]]] = []
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{SCRATCH_PREFIX}*")):
        try:
            # Anybody may make folders with this name in a shared /tmp, and other processes remove theirs meanwhile.
            about = folder.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
                continue
            labels = json.loads((folder / OWNER_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(labels, dict):
            found.append((folder, {str(k): str(v) for k, v in labels.items()}))
    return found


def remove_scratch(folder: Path) -> None:
    """Its owner's name goes last: what dying processes still write, or a process that ends meanwhile leaves, is swept
    by a later run.
    """
    for entry in _entries(folder):
        if entry.is_dir() and not entry.is_symlink():
            remove_tree(entry)
        elif entry.name != OWNER_FILE:
            with suppress(OSError):
                entry.unlink()
    if [entry.name for entry in _entries(folder)] in ([], [OWNER_FILE]):
        remove_tree(folder)


def _entries(folder: Path) -> list[Path]:
    with suppress(OSError):
        return list(folder.iterdir())
    return []


@contextmanager
def trial_folder() -> Iterator[Path]:
    """An empty folder for a sandbox that is opened only to see whether it works."""
    with tempfile.TemporaryDirectory(prefix="cuda-agent-trial-") as folder:
        yield Path(folder)

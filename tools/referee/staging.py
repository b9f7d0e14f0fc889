"""Private copies of a submission's files for its worker: regular files only, without model.py and without any built
library.
"""

import hashlib
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from referee.launch import WorkerFailure

LIMIT_BYTES: Final = 64 << 20
LIMIT_FILES: Final = 2000
MOST_NESTED: Final = 32
LEFT_OUT: Final = (".so", ".o", ".a", ".pyc", ".pyd", ".pth")


def stage(workspace: Path, folder: Path) -> str:
    """Copy what may be read by the submission's worker; the sha256 over names and contents."""
    digest = hashlib.sha256()
    total = 0
    for path in _files(workspace):
        name = path.relative_to(workspace)
        data = path.read_bytes()
        total += len(data)
        if total > LIMIT_BYTES:
            raise WorkerFailure("submission", "load.too_large", "the workspace holds more than 64 MiB")
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)
        digest.update(f"\0{name}\0{len(data)}\0".encode() + data)
    if not (folder / "model_new.py").is_file():
        raise WorkerFailure("submission", "load.no_model_new", "the workspace holds no model_new.py (a regular file)")
    return digest.hexdigest()


def _files(workspace: Path) -> list[Path]:
    found = []
    for top, folders, names in os.walk(workspace):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        if len(Path(top).relative_to(workspace).parts) >= MOST_NESTED:
            raise WorkerFailure("submission", "load.too_large", f"folders nest deeper than {MOST_NESTED}")
        for name in sorted(names):
            path = Path(top) / name
            if path == workspace / "model.py" or path.suffix in LEFT_OUT:
                continue
            if stat.S_ISREG(path.lstat().st_mode) and path.lstat().st_size <= LIMIT_BYTES:
                found.append(path)
        if len(found) > LIMIT_FILES:
            raise WorkerFailure("submission", "load.too_large", "the workspace holds more than 2000 files")
    return found


@dataclass(frozen=True)
class OwnModule:
    """The built module's copy that the submission's worker loads, and could write to."""

    path: Path
    sha256: str

    @classmethod
    def of(cls, path: Path) -> "OwnModule":
        return cls(path=path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())

    def is_at(self, mapped: str) -> bool:
        """Whether a mapped file is this one, with what the build has put into it."""
        return mapped == str(self.path) and self.path.is_file() and self == OwnModule.of(self.path)


def own_module_folder(built: str, folder: Path) -> Path:
    """A folder that holds nothing but the built module."""
    folder.mkdir(parents=True)
    shutil.copyfile(built, folder / Path(built).name)
    (folder / Path(built).name).chmod(0o555)
    return folder

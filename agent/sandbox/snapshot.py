"""A safe copy of a submission out of a folder that an attacker controls.

Covers: only regular files are copied, no link is followed and no path can leave the folder (beneath.py); number, size
and depth are limited while reading, so a file that grows does not matter; the hash is taken over the bytes that were
copied; the copy appears under its name complete or not at all. Build products are left out: a judge builds again.
Not covered: what the files mean. Their text is as hostile as before.
"""

import contextlib
import ctypes
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.sandbox.beneath import open_regular

MAX_BYTES: Final = 16 << 20
MAX_FILES: Final = 512
MAX_DEPTH: Final = 8
CHUNK: Final = 1 << 18
LEFT_OUT: Final = (".so", ".o", ".a", ".pyc")
LEFT_OUT_FOLDERS: Final = (b"__pycache__",)
AT_FDCWD: Final = -100
RENAME_EXCHANGE: Final = 2
FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class SnapshotError(ValueError):
    """The folder does not hold a submission that can be copied: the model's mistake, so data rather than a failure."""


def copy_submission(
    source: Path,
    target: Path,
    *,
    names: Sequence[str] = ("model_new.py", "kernels"),
    max_bytes: int = MAX_BYTES,
    max_files: int = MAX_FILES,
) -> str:
    """Copy `names` from `source` to the folder `target`, replacing it in one step; returns the sha256 of the copy.

    The hash covers relative names and contents. Raises SnapshotError where nothing can be copied, OSError where the
    target cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.parent / f".{target.name}.{secrets.token_hex(6)}"
    _make_folder(fresh)
    try:
        copy = _Copy(max_bytes=max_bytes, max_files=max_files)
        folder = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in names:
                copy.entry(folder, os.fsencode(name), fresh, depth=0, shown="", optional=True)
        finally:
            os.close(folder)
        if not copy.hashes:
            raise SnapshotError(f"there is no {' and no '.join(names)}")
        _put_in_place(fresh, target)
        return copy.digest()
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@dataclass
class _Copy:
    """One run through a submission; counts down what may still be copied."""

    max_bytes: int
    max_files: int
    hashes: dict[bytes, bytes] = field(default_factory=dict)
    entries: int = 0
    size: int = 0

    def digest(self) -> str:
        """Over names and contents in the order of names; lengths keep one from being taken for the other."""
        total = hashlib.sha256()
        for name, content in sorted(self.hashes.items()):
            total.update(len(name).to_bytes(8, "big") + name + content)
        return total.hexdigest()

    def entry(self, folder: int, name: bytes, into: Path, *, depth: int, shown: str, optional: bool = False) -> None:
        shown = f"{shown}/{os.fsdecode(name)}" if shown else os.fsdecode(name)
        self._count(shown)
        try:
            mode = os.lstat(name, dir_fd=folder).st_mode
            if stat.S_ISDIR(mode):
                self._folder(folder, name, into, depth=depth, shown=shown)
            elif not shown.endswith(LEFT_OUT):
                self._file(folder, name, into, shown=shown)
        except FileNotFoundError as error:
            if not optional:
                raise SnapshotError(f"{_printable(shown)} vanished while it was copied") from error
        except _Unreadable as error:
            raise SnapshotError(f"{_printable(shown)}: {error}") from error

    def _count(self, shown: str) -> None:
        self.entries += 1
        if self.entries > self.max_files:
            raise SnapshotError(f"more than {self.max_files} files (at {_printable(shown)})")

    def _folder(self, folder: int, name: bytes, into: Path, *, depth: int, shown: str) -> None:
        if name in LEFT_OUT_FOLDERS:
            return
        if depth >= MAX_DEPTH:
            raise SnapshotError(f"{_printable(shown)}: folders nest deeper than {MAX_DEPTH}")
        with _unreadable():
            inner = os.open(name, FOLDER_FLAGS, dir_fd=folder)
        try:
            below = into / os.fsdecode(name)
            _make_folder(below)
            for child in self._names(inner, shown):
                self.entry(inner, child, below, depth=depth + 1, shown=shown)
        finally:
            os.close(inner)

    def _names(self, folder: int, shown: str) -> list[bytes]:
        """Sorted; read one by one, because a folder may hold millions."""
        names: list[bytes] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                names.append(os.fsencode(entry.name))
                if len(names) > self.max_files:
                    raise SnapshotError(f"{_printable(shown)}: more than {self.max_files} files")
        return sorted(names)

    def _file(self, folder: int, name: bytes, into: Path, *, shown: str) -> None:
        with _unreadable():
            source = open_regular(folder, name)
        content = hashlib.sha256()
        path = into / os.fsdecode(name)
        try:
            with path.open("xb") as out:
                while chunk := os.read(source, CHUNK):
                    self.size += len(chunk)
                    if self.size > self.max_bytes:
                        raise SnapshotError(f"{_printable(shown)}: more than {self.max_bytes} bytes in all")
                    content.update(chunk)
                    out.write(chunk)
        finally:
            os.close(source)
        path.chmod(0o644)
        relative = os.fsencode(shown)
        self.hashes[relative] = content.digest()


class _Unreadable(Exception):
    """Something that is there and cannot be taken."""


class _unreadable(contextlib.AbstractContextManager[None]):
    """Errors of opening an attacker's entry are findings about it; errors of writing the copy are not."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise _Unreadable(error.strerror or str(error)) from error


def _make_folder(path: Path) -> None:
    """Readable by the sandbox's user whatever the umask is."""
    path.mkdir()
    path.chmod(0o755)


def _put_in_place(fresh: Path, target: Path) -> None:
    """Rename; an existing folder is exchanged in the same step, so that there is always one of the two."""
    if not target.exists():
        fresh.rename(target)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    code = libc.renameat2(AT_FDCWD, os.fsencode(fresh), AT_FDCWD, os.fsencode(target), RENAME_EXCHANGE)
    if code != 0:
        # Some file systems cannot exchange; then there is a moment without a target.
        old = fresh.with_name(fresh.name + ".old")
        target.rename(old)
        fresh.rename(target)
        shutil.rmtree(old, ignore_errors=True)


def _printable(name: str) -> str:
    """Names are the attacker's: no control characters, no half characters, no novels."""
    return name.encode("utf-8", "replace").decode("utf-8").translate(dict.fromkeys(range(32), "?"))[:200]

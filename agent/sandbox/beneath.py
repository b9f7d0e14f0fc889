"""Reading and writing files below a host folder whose content an attacker controls.

Covers: symbolic links, `..`, FIFOs, sockets, devices, and folders that are swapped while a path is walked: every
component is opened by its own descriptor with O_NOFOLLOW, so no step can leave the folder. Links are refused even
where they would stay inside. Not covered: hard links made inside the folder (they need the same file system and the
attacker's own access to the file), and mount points below the folder.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.sandbox.process import encode_argument

FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
CHUNK: Final = 1 << 20
NAME_MAX: Final = 255


@dataclass(frozen=True)
class Root:
    """A host folder (or a single file) and where the sandbox sees it."""

    target: str
    source: Path
    read_only: bool


@dataclass(frozen=True)
class HostFiles:
    """File access by sandbox path, served on the host. New files and folders are given to `owner` (uid, gid)."""

    roots: tuple[Root, ...]
    default: str
    owner: tuple[int, int] | None = None

    def covers(self, path: str) -> bool:
        return self._find(path) is not None

    def read(self, path: str, *, limit: int) -> bytes:
        root, parts = self._resolve(path)
        return read_beneath(root.source, parts, limit=limit, shown=path)

    def write(self, path: str, data: bytes, *, mode: int) -> None:
        root, parts = self._resolve(path)
        if root.read_only:
            raise PermissionError(errno.EROFS, "the place is read-only", path)
        write_beneath(root.source, parts, data, mode=mode, owner=self.owner, shown=path)

    def _resolve(self, path: str) -> tuple[Root, list[bytes]]:
        found = self._find(path)
        if found is None:
            raise PermissionError(errno.EACCES, "outside of what the sandbox shares with its host", path)
        return found

    def _find(self, path: str) -> tuple[Root, list[bytes]] | None:
        parts = split_path(path if path.startswith("/") else f"{self.default}/{path}")
        best: tuple[Root, list[bytes]] | None = None
        length = -1
        for root in self.roots:
            prefix = split_path(root.target)
            if parts[: len(prefix)] == prefix and len(prefix) > length:
                best, length = (root, parts[len(prefix) :]), len(prefix)
        return best


def split_path(path: str) -> list[bytes]:
    """Components of a path. Raises PermissionError for `..` and FileNotFoundError for a NUL byte."""
    if "\0" in path:
        raise FileNotFoundError(errno.ENOENT, "a path cannot hold a NUL byte", path)
    parts = [part for part in encode_argument(path).split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise PermissionError(errno.EACCES, "'..' is not allowed in a path", path)
    return parts


def read_beneath(root: Path, parts: Sequence[bytes], *, limit: int, shown: str) -> bytes:
    """The first `limit` bytes of a regular file. Raises FileNotFoundError, IsADirectoryError, PermissionError."""
    with _errors(shown), _opened(root, parts) as file:
        chunks: list[bytes] = []
        while limit > 0 and (chunk := os.read(file, min(limit, CHUNK))):
            chunks.append(chunk)
            limit -= len(chunk)
        return b"".join(chunks)


def write_beneath(
    root: Path, parts: Sequence[bytes], data: bytes, *, mode: int, owner: tuple[int, int] | None, shown: str
) -> None:
    """Replace a file atomically, making parent folders. An existing link is replaced, never followed."""
    if not parts:
        raise IsADirectoryError(errno.EISDIR, "is a folder", shown)
    with _errors(shown), open_folder(root, parts[:-1], create=True, owner=owner) as folder:
        name = parts[-1]
        temporary = b"." + name[: NAME_MAX - 20] + b"." + secrets.token_hex(8).encode()
        try:
            _create(folder, temporary, data, mode=mode, owner=owner)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise


@contextmanager
def open_folder(
    root: Path, parts: Sequence[bytes], *, create: bool = False, owner: tuple[int, int] | None = None
) -> Iterator[int]:
    """Descriptor of the folder `parts` below `root`, walked without following anything."""
    current = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            following = _enter(current, part, create=create, owner=owner)
            os.close(current)
            current = following
        yield current
    finally:
        os.close(current)


def open_regular(folder: int, name: bytes) -> int:
    """Descriptor of a regular file in `folder`, for reading. PermissionError or IsADirectoryError for anything else."""
    # Looked at before it is opened: opening a device can have effects.
    _require_regular(os.lstat(name, dir_fd=folder).st_mode)
    file = os.open(name, FILE_FLAGS, dir_fd=folder)
    try:
        _require_regular(os.fstat(file).st_mode)
    except BaseException:
        os.close(file)
        raise
    return file


@contextmanager
def _opened(root: Path, parts: Sequence[bytes]) -> Iterator[int]:
    if not parts:
        # A mount of a single file: its host path is trusted.
        file = os.open(root, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _require_regular(os.fstat(file).st_mode)
            yield file
        finally:
            os.close(file)
        return
    with open_folder(root, parts[:-1]) as folder:
        file = open_regular(folder, parts[-1])
        try:
            yield file
        finally:
            os.close(file)


def _enter(folder: int, name: bytes, *, create: bool, owner: tuple[int, int] | None) -> int:
    if create:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=folder)
            if owner is not None:
                os.chown(name, *owner, dir_fd=folder, follow_symlinks=False)
    try:
        return os.open(name, FOLDER_FLAGS, dir_fd=folder)
    except NotADirectoryError as error:
        if stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode):
            raise PermissionError(errno.EACCES, "a symbolic link is not followed") from error
        raise FileNotFoundError(errno.ENOENT, "a part of the path is not a folder") from error


def _create(folder: int, name: bytes, data: bytes, *, mode: int, owner: tuple[int, int] | None) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        if owner is not None:
            os.fchown(file, *owner)
        os.fchmod(file, mode)
    finally:
        os.close(file)


def _require_regular(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder")
    if stat.S_ISLNK(mode):
        raise PermissionError(errno.EACCES, "a symbolic link is not followed")
    if not stat.S_ISREG(mode):
        raise PermissionError(errno.EACCES, "is not a regular file")


@contextmanager
def _errors(shown: str) -> Iterator[None]:
    """Name the sandbox' path, not a descriptor-relative piece of it."""
    try:
        yield
    except OSError as error:
        code, text = (errno.EACCES, "a symbolic link is not followed") if error.errno == errno.ELOOP else error.args[:2]
        raise OSError(code, text, shown) from error

"""Reads a submission's kernels/ folder into memory.

Covered: only regular files of at most a few megabytes are read, never through a symbolic link; everything that is no
source or header (a shipped .so, .o, .py, a folder) is left behind and named. Not covered: what the sources contain.
"""

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SOURCE_SUFFIXES: Final = (".cpp", ".cu")
HEADER_SUFFIXES: Final = (".h", ".hpp", ".cuh", ".inc")
MAX_FILES: Final = 64
MAX_BYTES: Final = 4 << 20  # of all files together
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*\Z")


class SourceError(Exception):
    """The folder cannot be built as it stands; `code` is a build.* reason."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


@dataclass(frozen=True)
class Sources:
    """File name -> content, sources and headers apart, both sorted; `ignored` holds (path, why)."""

    sources: dict[str, bytes] = field(default_factory=dict)
    headers: dict[str, bytes] = field(default_factory=dict)
    ignored: tuple[tuple[str, str], ...] = ()


def read_sources(workspace: Path, *, target: str) -> Sources:
    """The sources of `workspace`/kernels for `target`. Raises SourceError."""
    folder = workspace / "kernels"
    if folder.is_symlink():
        raise SourceError("build.symlink", "kernels is a symbolic link; it must be a folder of regular files")
    if not folder.is_dir():
        return Sources()
    sources: dict[str, bytes] = {}
    headers: dict[str, bytes] = {}
    ignored: list[tuple[str, str]] = []
    total = 0
    for path in sorted(folder.iterdir()):
        name = path.name
        why = _why_ignored(name, path, target=target)
        if why:
            ignored.append((f"kernels/{name}", why))
            continue
        data = _read_regular(path, limit=MAX_BYTES - total)
        total += len(data)
        (sources if path.suffix in SOURCE_SUFFIXES else headers)[name] = data
        if len(sources) + len(headers) > MAX_FILES:
            raise SourceError("build.too_large", f"kernels/ holds more than {MAX_FILES} sources and headers")
    return Sources(sources, headers, tuple(ignored))


def _why_ignored(name: str, path: Path, *, target: str) -> str:
    if path.suffix not in SOURCE_SUFFIXES + HEADER_SUFFIXES:
        if not path.is_symlink() and path.is_dir():
            return "ignored: only files directly in kernels/ are built"
        return "ignored: neither a source (.cpp, .cu) nor a header (.h, .hpp, .cuh, .inc)"
    if not _NAME.match(name):
        raise SourceError("build.file_name", f"kernels/{name!a}: letters, digits, '_', '-', '+' and '.' only")
    if target == "cpu" and path.suffix == ".cu":
        return "ignored: target cpu compiles .cpp files only"
    return ""


def _read_regular(path: Path, *, limit: int) -> bytes:
    shown = f"kernels/{path.name}"
    # O_NOFOLLOW refuses links at open time, O_NONBLOCK keeps a fifo from hanging: no gap between check and use.
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise SourceError("build.symlink", f"{shown} is a symbolic link; put a regular file there") from error
        raise SourceError("build.unreadable", f"{shown}: {error.strerror}") from error
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise SourceError("build.not_regular", f"{shown} is not a regular file")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise SourceError("build.too_large", f"kernels/ is larger than {MAX_BYTES >> 20} MB in all")
    return data

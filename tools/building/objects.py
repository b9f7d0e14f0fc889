"""Object files by content: what an unchanged source was compiled to, and what the compiler said about it.

A name is a hash over everything that decides the object: the source, the headers it may read, our binding files, flags
and versions of compilers and torch. An object is taken as it is: a folder of objects is trusted by whoever names it.
"""

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

COMPUTED_INCLUDE: Final = re.compile(rb"#\s*include\s*[^\"<\s]")
KEPT_OBJECTS: Final = 4000
LOG_BYTES: Final = 64 << 10


def object_name(name: str, text: bytes, headers: dict[str, bytes], *, identity: str, binding: Iterable[Path]) -> str:
    """The object's file name; `headers` are all of the submission's."""
    digest = hashlib.sha256(identity.encode())
    read = headers_of(text, headers)
    for part in (name.encode(), text, *(piece for header in read for piece in (header.encode(), read[header]))):
        digest.update(b"%d\0" % len(part) + part)
    for path in binding:
        digest.update(path.read_bytes())
    return digest.hexdigest() + ".o"


def headers_of(text: bytes, headers: dict[str, bytes]) -> dict[str, bytes]:
    """The headers that `text` may read: named in it or in one of them; all where a name is computed."""
    named: dict[str, bytes] = {}
    texts = [text]
    while texts:
        current = texts.pop()
        if COMPUTED_INCLUDE.search(current):
            return headers
        new = {name: data for name, data in headers.items() if name not in named and name.encode() in current}
        named |= new
        texts += new.values()
    return dict(sorted(named.items()))


def take(folder: Path, name: str, destination: Path) -> str | None:
    """Copies the object to `destination` and returns the compiler's output of that time; None where there is none."""
    kept, log = folder / name, (folder / name).with_suffix(".log")
    try:
        shutil.copyfile(kept, destination, follow_symlinks=False)
        said = log.read_text(encoding="utf-8") if log.exists() else ""
    except OSError:
        return None
    return said if destination.is_file() and not destination.is_symlink() else None


def keep(made: Path, folder: Path, name: str, output: str) -> None:
    """Keeps an object beside the compiler's output, the output first: an object without it would lose its warnings."""
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time, nothing else
        folder.mkdir(parents=True, exist_ok=True)
        if output:
            _put(folder, (folder / name).with_suffix(".log"), output.encode("utf-8", "replace")[:LOG_BYTES])
        _put(folder, folder / name, made.read_bytes())


def _put(folder: Path, final: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=folder)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    path = Path(temporary)
    path.chmod(0o644)
    path.rename(final)


def prune(folder: Path, *, kept: int = KEPT_OBJECTS) -> None:
    """Removes the objects that were made longest ago, beyond `kept`."""
    with contextlib.suppress(OSError):
        found = sorted(folder.glob("*.o"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in found[kept:]:
            path.unlink(missing_ok=True)
            path.with_suffix(".log").unlink(missing_ok=True)

"""Writes a data set: into a hidden folder beside the wanted one, which takes its name when everything is there.

Covers: an export that is interrupted at any moment, or that fails, leaves no half data set under the wanted name; what
stood there before stays until then. Does not cover: kill -9 leaves the hidden folder `.NAME.new-…` behind.
"""

import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from agent.config import expanded
from agent.errors import ConfigError, RecordError
from agent.export.columns import arrow_schema, dump, pyarrow, storable
from agent.export.formats import Layout
from agent.export.rows import DEFAULT, Row
from agent.trajectory.writer import record_error

CARD: Final = "card.json"
GROUP_ROWS: Final = 256
GROUP_BYTES: Final = 8 << 20
_PLAIN: Final = frozenset({"text", "int", "float", "flag"})


@dataclass(frozen=True)
class Encoded:
    """A row ready for its file: bytes (JSONL, one file each), or a record for parquet with its size in bytes."""

    set: str
    payload: Any
    size: int
    name: str = ""


@dataclass(frozen=True)
class DataFile:
    """One file that was written; `path` is relative to the data set."""

    path: str
    set: str
    split: str
    rows: int
    bytes: int
    sha256: str


def encode(row: Row, columns: Mapping[str, str], layout: Layout) -> Encoded:
    """Done by workers. A JSONL line has the keys that have a value, where all rows need not have the same ones."""
    if layout == "parquet":
        stored = storable(columns, row.record)
        return Encoded(row.set, stored, len(dump(stored)))
    data = dump(row.record).encode("utf-8")
    return Encoded(row.set, data + b"\n", len(data) + 1, row.name)


def check_output(output: Path, *, overwrite: bool) -> Path:
    """The folder to write, absolute. Raises ConfigError where something stands there that must not be replaced."""
    target = expanded(output).absolute()
    if not target.exists() and not target.is_symlink():
        return target
    if not target.is_dir() or target.is_symlink():
        raise ConfigError(f"{output} is there and no folder", hint="choose another one with -o")
    if not any(target.iterdir()):
        return target
    if not overwrite:
        raise ConfigError(f"{output} is not empty", hint="choose another folder, or give --overwrite")
    if not (target / CARD).is_file():
        raise ConfigError(f"{output} holds no earlier export (no {CARD}), so it is not overwritten")
    return target


@contextlib.contextmanager
def staged(target: Path) -> Iterator[Path]:
    """A hidden folder that becomes `target` when the block ends well, and vanishes otherwise. Raises RecordError."""
    hidden = target.with_name(f".{target.name}.new-{secrets.token_hex(4)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        hidden.mkdir()
    except OSError as error:
        raise ConfigError(f"cannot write {target}: {error.strerror or error}", hint="choose another -o") from error
    try:
        yield hidden
        _replace(hidden, target)
    except OSError as error:
        shutil.rmtree(hidden, ignore_errors=True)
        raise record_error(target, error) from error
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise


class Writer(Protocol):
    """One open file."""

    rows: int

    def write(self, encoded: Encoded) -> None: ...

    def close(self) -> None: ...


class DataFiles:
    """The files of a data set by split and set, opened when their first row comes; an empty one is never there."""

    def __init__(self, root: Path, sets: Mapping[str, Mapping[str, str]], layout: Layout) -> None:
        self._root, self._sets, self._layout = root, sets, layout
        self._open: dict[tuple[str, str], tuple[str, Writer]] = {}

    def write(self, split: str, encoded: Encoded) -> None:
        key = split, encoded.set
        if key not in self._open:
            self._open[key] = self._new(split, encoded.set)
        self._open[key][1].write(encoded)

    def close(self) -> list[DataFile]:
        """Everything on disk, with what to say about it in the card."""
        files: list[DataFile] = []
        for (split, set), (path, writer) in sorted(self._open.items()):
            writer.close()
            size, digest = _measure(self._root / path)
            files.append(DataFile(path, set, split, writer.rows, size, digest))
        return files

    def abandon(self) -> None:
        """Give up file descriptors after something went wrong."""
        for _, writer in self._open.values():
            with contextlib.suppress(OSError, ValueError):  # the first error counts
                writer.close()

    def _new(self, split: str, set: str) -> tuple[str, Writer]:
        stem = split if set == DEFAULT else f"{set}-{split}"
        if self._layout == "files":
            (self._root / stem).mkdir()
            return stem, _OneFileEach(self._root / stem)
        path = f"{stem}.{self._layout}"
        if self._layout == "parquet":
            return path, _Parquet(self._root / path, self._sets[set])
        return path, _Lines(self._root / path)


class _Lines:
    """JSONL."""

    def __init__(self, path: Path) -> None:
        self.rows = 0
        self._file: BinaryIO = path.open("wb", buffering=1 << 20)

    def write(self, encoded: Encoded) -> None:
        self._file.write(encoded.payload)
        self.rows += 1

    def close(self) -> None:
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()


class _OneFileEach:
    """One JSON file a row."""

    def __init__(self, folder: Path) -> None:
        self.rows = 0
        self._folder = folder

    def write(self, encoded: Encoded) -> None:
        (self._folder / f"{encoded.name}.json").write_bytes(encoded.payload)
        self.rows += 1

    def close(self) -> None:
        pass


class _Parquet:
    """Row groups bounded by rows and bytes, so that memory is bounded and the same rows give the same bytes."""

    def __init__(self, path: Path, columns: Mapping[str, str]) -> None:
        pa = pyarrow()
        self.rows = 0
        self._arrow = pa
        self._schema = arrow_schema(columns)
        self._writer = pa.parquet.ParquetWriter(str(path), self._schema, compression="zstd")
        self._group: list[dict[str, Any]] = []
        self._bytes = 0
        self._closed = False

    def write(self, encoded: Encoded) -> None:
        self._group.append(encoded.payload)
        self._bytes += encoded.size
        self.rows += 1
        if len(self._group) >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            try:
                self._flush()
            finally:
                self._writer.close()

    def _flush(self) -> None:
        if self._group:
            self._writer.write_table(self._arrow.Table.from_pylist(self._group, schema=self._schema))
        self._group, self._bytes = [], 0


def write_text(path: Path, text: str) -> None:
    """One small file, on disk when this returns."""
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _replace(hidden: Path, target: Path) -> None:
    if not target.exists():
        hidden.rename(target)
        return
    aside = target.with_name(f".{target.name}.old-{secrets.token_hex(4)}")
    target.rename(aside)
    try:
        hidden.rename(target)
    except OSError as error:
        aside.rename(target)
        raise RecordError(f"cannot put the data set in the place of {target}: {error.strerror or error}") from error
    shutil.rmtree(aside, ignore_errors=True)


def _measure(path: Path) -> tuple[int, str]:
    """Bytes and sha256 of a file; of a folder: over the names and digests of its files."""
    if path.is_dir():
        digest, size = hashlib.sha256(), 0
        for inner in sorted(path.iterdir()):
            inner_size, inner_digest = _measure(inner)
            size += inner_size
            digest.update(f"{inner.name} {inner_digest}\n".encode())
        return size, digest.hexdigest()
    with path.open("rb") as file:
        return path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()

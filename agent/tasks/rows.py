"""Tasks as rows of a file: JSONL and parquet with the columns of CUDA-Agent-Ops-6K (`ops`, `data_source`, `code`).

`code` is the text of a model.py. `task_id`, `id` or `name` names a row; where there is none, the row's number and its
`ops` do. Rows are read one by one: a file of any length costs the memory of its tasks, not its own.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from agent.errors import ConfigError, install
from agent.tasks.candidates import Candidates, Found, Refusal, candidate
from agent.tasks.task import MAX_BYTES

CODE: Final = "code"
IDS: Final = ("task_id", "id", "name")
COLUMNS: Final = (CODE, *IDS, "ops", "data_source")
# JSON escapes make a text longer: \n is two bytes, \u00e9 six.
MAX_LINE_BYTES: Final = 2 * MAX_BYTES
BATCH_ROWS: Final = 256
ID_CHARS: Final = 48


def read_jsonl(path: Path) -> Candidates:
    """One candidate per line; blank lines are none. Raises ConfigError where the file cannot be read."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), 1):
                where = Path(f"{path}:{number}")
                if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
                    _skip_line(file)
                    yield Refusal(str(where), "too_large", f"the line is longer than {MAX_LINE_BYTES >> 20} MiB")
                elif line.strip():
                    yield _parsed(line, where, number)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error


def read_parquet(path: Path) -> Candidates:
    """One candidate per row. Raises ConfigError where the file is none, or pyarrow is not installed."""
    try:
        from pyarrow import ArrowException, parquet  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise ConfigError("task sets in parquet need pyarrow", hint=install("parquet")) from None
    try:
        with parquet.ParquetFile(path) as file:
            there = [name for name in COLUMNS if name in file.schema_arrow.names]
            if CODE not in there:
                names = ", ".join(file.schema_arrow.names)
                raise ConfigError(f"{path} has no column {CODE}", hint=f"its columns: {names}")
            yield from _parquet_rows(file, there, path)
    except (OSError, ArrowException) as error:
        raise ConfigError(f"cannot read {path} as parquet: {' '.join(str(error).split())}") from error


def row_id(row: Mapping[str, Any], number: int) -> tuple[str, bool]:
    """The row's id, and whether the row named itself."""
    for column in IDS:
        value = row.get(column)
        if isinstance(value, str | int) and not isinstance(value, bool) and (text := str(value).strip()):
            return text, True
    words = re.findall(r"[A-Za-z]\w*(?:\.\w+)*", str(row.get("ops") or ""))
    ops = "-".join(word.rpartition(".")[2].lower() for word in words)
    return f"{number:05}-{ops}"[:ID_CHARS].rstrip("-"), False


def _parsed(line: bytes, where: Path, number: int) -> Found:
    try:
        row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        return Refusal(str(where), "not_utf8", f"{error.reason} at byte {error.start}")
    except (ValueError, RecursionError) as error:
        return Refusal(str(where), "not_json", str(error))
    if not isinstance(row, dict):
        return Refusal(str(where), "missing_column", f"a row is an object with the column {CODE}")
    return _from_row(row, where, number)


def _from_row(row: Mapping[str, Any], where: Path, number: int) -> Found:
    code = row.get(CODE)
    if code is None:
        there = ", ".join(map(str, row)) or "none"
        return Refusal(str(where), "missing_column", f"no {CODE}; columns: {there[:200]}")
    id, named = row_id(row, number)
    columns = {name: value for name, value in row.items() if name != CODE}
    if isinstance(code, bytes):
        return candidate(code, where=where, id=id, named=named, columns=columns)
    if not isinstance(code, str):
        return Refusal(str(where), "not_a_task", f"{CODE} is no text but {type(code).__name__}")
    try:
        return candidate(code.encode("utf-8"), where=where, id=id, named=named, columns=columns)
    except UnicodeEncodeError:  # a lone surrogate, which JSON can escape
        return Refusal(str(where), "not_utf8", f"{CODE} holds half of a surrogate pair")


def _parquet_rows(file: Any, columns: list[str], path: Path) -> Iterator[Found]:
    number = 0
    for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=columns):
        for index in range(batch.num_rows):
            number += 1
            where = Path(f"{path}:{number}")
            try:
                row = {name: batch.column(name)[index].as_py() for name in columns}
            except UnicodeDecodeError as error:
                yield Refusal(str(where), "not_utf8", f"{error.reason} at byte {error.start}")
                continue
            yield _from_row({name: value for name, value in row.items() if value is not None}, where, number)


def _skip_line(file: Any) -> None:
    while (rest := file.readline(1 << 20)) and not rest.endswith(b"\n"):
        pass

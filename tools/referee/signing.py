"""Who wrote a report: the host sends a key on standard input, and only the process that read it can sign a line.

Covers: lines that a submission writes to the standard output of the processes around the tool, whose descriptors it may
be able to open; the key lies only in a process that is not dumpable and executes nothing foreign. Without a key (a tool
that is started by hand) a report is a plain line of JSON.
"""

import hmac
import json
import os
from typing import Any, Final

KEY: Final = "report_key"


def key_in(asked: dict[str, Any]) -> bytes:
    """The key that came with the task. Raises ValueError where it is no hexadecimal text."""
    given = asked.get(KEY, "")
    if not isinstance(given, str):
        raise ValueError(f"{KEY} is no text")
    return bytes.fromhex(given)


def take_stdout() -> int:
    """The real standard output as a new descriptor; whatever writes to descriptor 1 from now on goes to the log."""
    kept = os.dup(1)
    os.dup2(2, 1)
    return kept


def write(descriptor: int, report: dict[str, Any], *, key: bytes) -> None:
    """Close `descriptor` after one line; it begins a line of its own, whatever somebody else has left unfinished."""
    data = json.dumps(report, allow_nan=False).encode()
    line = b"\n" + hmac.digest(key, data, "sha256").hex().encode() + b" " + data if key else data
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(line + b"\n")

"""Reading and writing files by commands inside a sandbox, for places that the host cannot reach (a container's /tmp).

Covers: whatever the path leads to is seen with the rights and the file system of the sandbox, so nothing of the host
can be reached. Not covered: the content, which the model controls like everything else in its sandbox.
"""

import errno
from typing import Final, Protocol

from agent.sandbox.base import ExecResult

TIMEOUT_S: Final = 60.0
LINK, MISSING, FOLDER, SPECIAL, DENIED = 61, 62, 63, 64, 65
READ: Final = (
    f'[ ! -L "$1" ] || exit {LINK}; [ -e "$1" ] || exit {MISSING}; [ ! -d "$1" ] || exit {FOLDER}; '
    f'[ -f "$1" ] || exit {SPECIAL}; [ -r "$1" ] || exit {DENIED}; exec head -c "$2" -- "$1"'
)
WRITE: Final = (
    f'[ ! -d "$1" ] || exit {FOLDER}; mkdir -p -- "$(dirname -- "$1")" || exit {DENIED}; t="$1.$$.tmp"; '
    'if cat > "$t" && chmod "$2" -- "$t" && mv -fT -- "$t" "$1"; then exit 0; fi; '
    f'rm -f -- "$t"; [ -w "$(dirname -- "$1")" ] || exit {DENIED}; exit 1'
)


class Exec(Protocol):
    """The part of a sandbox' exec that is needed here; `head_bytes` is how much of stdout is kept."""

    def __call__(
        self, argv: list[str], *, timeout_s: float, stdin: bytes | None = None, head_bytes: int = ...
    ) -> ExecResult: ...


def read_inside(run: Exec, path: str, *, limit: int) -> bytes:
    result = run(["/bin/sh", "-c", READ, "sh", path, str(limit)], timeout_s=TIMEOUT_S, head_bytes=limit)
    _raise_for(result, path)
    return result.stdout.head[:limit]


def write_inside(run: Exec, path: str, data: bytes, *, mode: int) -> None:
    argv = ["/bin/sh", "-c", WRITE, "sh", path, f"{mode:o}"]
    _raise_for(run(argv, timeout_s=TIMEOUT_S, stdin=data), path)


def _raise_for(result: ExecResult, path: str) -> None:
    if result.ok:
        return
    said = result.stderr.text().strip()
    if "No space left" in said or result.status == "oom":
        raise OSError(errno.ENOSPC, "no space left in the sandbox", path)
    code, text = {
        LINK: (errno.EACCES, "a symbolic link is not followed"),
        MISSING: (errno.ENOENT, "no such file"),
        FOLDER: (errno.EISDIR, "is a folder"),
        SPECIAL: (errno.EACCES, "is not a regular file"),
        DENIED: (errno.EACCES, "no permission"),
    }.get(result.exit_code, (errno.EIO, said[:200] or f"exit code {result.exit_code}"))
    raise OSError(code, text, path)

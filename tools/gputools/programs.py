"""Where NVIDIA's programs are, and a bounded way to run one."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDERS: Final = ("/usr/local/cuda/bin", "/usr/local/bin", "/usr/bin", "/usr/local/nvidia/bin")
# Nsight Compute and compute-sanitizer also come in folders of their own, with the version in the path.
ELSEWHERE: Final = {
    "ncu": ("/opt/nvidia/nsight-compute/*/ncu", "/usr/local/cuda/nsight-compute*/ncu"),
    "compute-sanitizer": ("/usr/local/cuda/compute-sanitizer/compute-sanitizer",),
}
OUTPUT_CHARS: Final = 4_000_000


@dataclass(frozen=True)
class Ran:
    """A program that ended, or was ended: then `code` is None."""

    code: int | None
    out: str
    err: str

    @property
    def said(self) -> str:
        return self.out + self.err


def find(name: str) -> str | None:
    """The program's path: on PATH first, then where NVIDIA puts it; the newest version where there are several."""
    for folder in (*os.environ.get("PATH", "").split(":"), *FOLDERS):
        if folder.startswith("/") and os.access(f"{folder}/{name}", os.X_OK):
            return f"{folder}/{name}"
    for pattern in ELSEWHERE.get(name, ()):
        found = [path for path in sorted(Path("/").glob(pattern[1:])) if os.access(path, os.X_OK)]
        if found:
            return str(found[-1])
    return None


def run(argv: Sequence[str], *, timeout_s: float, cwd: Path | None = None, env: dict[str, str] | None = None) -> Ran:
    """Standard input is empty; the whole process group ends with the program. Raises OSError where it cannot start."""
    whole = {**os.environ, **(env or {})}
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        cwd=cwd,
        env=whole,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout_s)
        return Ran(process.returncode, out[:OUTPUT_CHARS], err[:OUTPUT_CHARS])
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        out, err = process.communicate()
        return Ran(None, out[:OUTPUT_CHARS], err[:OUTPUT_CHARS])

"""Runs one compiler process with limits on time, memory, file size and output.

Covered: wall and CPU time, address space, size of any written file, captured output; the whole process group ends with
the compiler. Not covered: what a compiler may read (the sandbox decides that).
"""

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

OUTPUT_BYTES: Final = 256 << 10
FILE_BYTES: Final = 2 << 30
Status = Literal["ok", "failed", "timeout", "memory", "file_size"]
_MEMORY_MARKS: Final = ("out of memory", "cannot allocate memory", "virtual memory exhausted", "std::bad_alloc")


@dataclass(frozen=True)
class Finished:
    """One ended process: `output` is stdout and stderr as they came, cut in the middle where it was long."""

    status: Status
    exit_code: int
    output: str
    seconds: float


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    log: Path,
    timeout_s: float,
    memory_bytes: int,
) -> Finished:
    """Runs `argv` in `cwd`, its output going to the file `log`. A program that is not there reads as failed, 127."""
    started = time.monotonic()

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        seconds = int(timeout_s) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    timed_out = False
    with log.open("wb") as sink:
        try:
            process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=limit,
            )
        except OSError as error:
            return Finished("failed", 127, f"{argv[0]}: {error.strerror}", time.monotonic() - started)
        try:
            code = process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            timed_out = True
            code = -signal.SIGKILL
        finally:
            _end_group(process)
    output = read_capped(log)
    return Finished(_status(code, output, timed_out=timed_out), code, output, time.monotonic() - started)


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def read_capped(path: Path) -> str:
    """Head and tail of a log file, with the number of bytes left out between them."""
    size = path.stat().st_size
    half = OUTPUT_BYTES // 2
    with path.open("rb") as file:
        if size <= OUTPUT_BYTES:
            return file.read().decode("utf-8", "replace")
        head = file.read(half)
        file.seek(size - half)
        tail = file.read(half)
    gap = f"\n[... {size - 2 * half} bytes omitted ...]\n"
    return head.decode("utf-8", "replace") + gap + tail.decode("utf-8", "replace")


def _status(code: int, output: str, *, timed_out: bool) -> Status:
    if code == 0:
        return "ok"
    lowered = output.lower()
    # The compiler driver survives a signal that ended its child and reports it in words.
    if timed_out or code == -signal.SIGXCPU or "cpu time limit exceeded" in lowered:
        return "timeout"
    if code == -signal.SIGXFSZ or "file size limit exceeded" in lowered or "file too large" in lowered:
        return "file_size"
    if any(mark in lowered for mark in _MEMORY_MARKS) or (code != 0 and "killed signal terminated" in lowered):
        return "memory"
    return "failed"

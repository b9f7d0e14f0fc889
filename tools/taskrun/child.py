"""The parent's side: starts inside.py for one model.py, bounds it, and turns every way to end into a typed outcome.

Covered: a model.py that raises, hangs, exits, crashes, floods its output or asks for more memory than there is. Not
covered: files and network, which are the sandbox's business; the child has the caller's uid.
"""

import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from building import toolchain
from referee import inherited, removal, signing

INSIDE: Final = Path(__file__).resolve().parent / "inside.py"
RESULT_BYTES: Final = 4 << 20
MODEL_BYTES: Final = 4 << 20
Mode = Literal["inspect", "compile", "trace"]


@dataclass(frozen=True)
class Outcome:
    """How the child ended: ok with a summary; invalid (the task's fault) or error (not the task's) with a code."""

    status: Literal["ok", "invalid", "error"]
    code: str = ""
    detail: str = ""
    summary: dict[str, Any] = field(default_factory=dict)


class StdinError(Exception):
    """Standard input does not hold {"model_py": "<text>"}."""


def asked_on_stdin(*, required: bool) -> tuple[str | None, bytes]:
    """The text under "model_py" of the JSON object on stdin (None where nothing was sent and nothing is required), and
    the key that signs the report, empty where none was sent.
    """
    data = b"" if sys.stdin.isatty() else sys.stdin.buffer.read(MODEL_BYTES + 1)
    if len(data) > MODEL_BYTES:
        raise StdinError(f"more than {MODEL_BYTES >> 20} MB on standard input")
    if not data.strip() and not required:
        return None, b""
    try:
        value = json.loads(data)
    except ValueError as error:
        raise StdinError(f'standard input must be {{"model_py": "<text>"}}: {error}') from error
    if not isinstance(value, dict) or not isinstance(value.get("model_py"), str):
        raise StdinError('standard input must be a JSON object with the text of model.py under "model_py"')
    try:
        return str(value["model_py"]), signing.key_in(value)
    except ValueError as error:
        raise StdinError(str(error)) from error


def run(
    mode: Mode, model_py: str, *, target: str, timeout_s: float, extra_env: Mapping[str, str] | None = None
) -> Outcome:
    """Executes `model_py` in a fresh interpreter, home and environment; never raises for what the task does."""
    with removal.scratch("agent-task-") as folder:
        # A lone surrogate cannot be written as UTF-8; the parser in the child then names the line.
        (folder / "model.py").write_text(model_py, encoding="utf-8", errors="replace")
        environment = {
            "PATH": toolchain.search_path(),
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "LC_ALL": "C.UTF-8",
            **inherited.variables(),
            **(extra_env or {}),
        }
        reader, writer = os.pipe()
        argv = [sys.executable, "-I", str(INSIDE), mode, target, f"{folder}/model.py", str(writer)]
        try:
            process = subprocess.Popen(
                argv,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(writer,),
                start_new_session=True,
                preexec_fn=None if target == "cuda" else _limit_memory,
            )
        finally:
            os.close(writer)
        try:
            return _outcome(process, reader, timeout_s)
        finally:
            os.close(reader)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _limit_memory() -> None:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    resource.setrlimit(resource.RLIMIT_AS, (total + (8 << 30), total + (8 << 30)))


def _outcome(process: "subprocess.Popen[bytes]", reader: int, timeout_s: float) -> Outcome:
    lines, timed_out = _read_lines(reader, timeout_s)
    phase = "starting"
    for line in lines:
        with contextlib.suppress(ValueError):
            message = json.loads(line)
            if "phase" in message:
                phase = str(message["phase"])
            elif message.get("status") in ("ok", "invalid", "error"):
                return Outcome(message["status"], message["code"], message["detail"], message["summary"])
    if timed_out:
        return Outcome("invalid", "task.hangs", f"{phase} did not end within {timeout_s:g} s")
    code = process.wait()
    if code < 0:
        name = signal.Signals(-code).name
        more = " (out of memory?)" if code == -signal.SIGKILL else ""
        return Outcome("invalid", "task.crashes", f"the process died by {name} during {phase}{more}")
    return Outcome("invalid", "task.exits", f"the process ended by itself (exit code {code}) during {phase}")


def _read_lines(reader: int, timeout_s: float) -> tuple[list[bytes], bool]:
    """What the child wrote until it closed the pipe, wrote its result, or the time was over."""
    os.set_blocking(reader, False)
    deadline = time.monotonic() + timeout_s
    data = b""
    while len(data) < RESULT_BYTES:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return data.splitlines(), True
        if not select.select([reader], [], [], min(remaining, 1.0))[0]:
            continue
        chunk = os.read(reader, 65536)
        data += chunk
        if not chunk or b'"status"' in data.rpartition(b"\n")[0]:
            break
    return data.splitlines(), False

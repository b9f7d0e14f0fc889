"""Times a set's tasks one after another: `python -I time_tasks.py --target cpu|cuda < TASKS.jsonl > TASKS.times.jsonl`.

Rows need `code`; `task_id` and `sha256` are handed through. Standard output: rows of times as they are known, eager
times of all tasks first, then those with torch.compile's; of two rows with one `sha256` the later counts. Standard
error: a table and a final count. Tasks whose sizes were never tried on this target (filtered as CPU-sized twins) are
measured with other batch sizes where the first time falls outside of 1 to 100 ms; `batch_size` then says which.

Covers: a task that raises, crashes, hangs, needs too much memory or breaks the device's context: it costs its own row.
One process at a time runs tasks, one task at a time. Does not cover other work on the machine, or hostile texts.
"""

import argparse
import contextlib
import hashlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from referee.launch import HEAP, SPIN

CHILD: Final = Path(__file__).resolve().parent / "taskrun" / "stopwatch.py"
START_S: Final = 180.0
LOW_MS, HIGH_MS = 1.0, 100.0
MORE: Final = 2000  # so much of what a child said last is kept
Row = dict[str, Any]


class NoDevice(Exception):
    """Nothing can be timed here."""


class Child:
    """The process that measures; another one takes its place where it is lost."""

    def __init__(self, target: str, memory_bytes: int) -> None:
        self.argv = [sys.executable, "-I", "-W", "ignore", str(CHILD), target, str(memory_bytes)]
        self.process: subprocess.Popen[bytes] | None = None
        self.where: Row = {}

    def ask(self, job: Row, *, timeout_s: float) -> Row:
        """The answer; `error` where there is none. Raises NoDevice."""
        process = self.process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(job).encode() + b"\n")
            process.stdin.flush()
            answer = self._line(timeout_s)
        except BrokenPipeError:
            answer = None
        if answer is None:
            return {"error": self._ended(timeout_s)}
        if answer.pop("lost", False):
            self.close()
        return answer

    def _start(self) -> "subprocess.Popen[bytes]":
        environment = {**os.environ, **HEAP, **SPIN}  # HEAP is read when a process starts
        self.process = subprocess.Popen(
            self.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
        )
        hello = self._line(START_S)
        if hello is None:
            raise NoDevice(f"the measuring process gave no sign: {self._ended(START_S)}")
        if "error" in hello:
            self.close()
            raise NoDevice(hello["error"])
        self.where = hello
        return self.process

    def _line(self, timeout_s: float) -> Row | None:
        assert self.process is not None and self.process.stdout is not None
        out, data = self.process.stdout, b""
        until = time.monotonic() + timeout_s
        while not data.endswith(b"\n"):
            if not select.select([out], [], [], max(0.0, until - time.monotonic()))[0]:
                return None
            chunk = os.read(out.fileno(), 1 << 16)
            if not chunk:
                return None
            data += chunk
        found: Row = json.loads(data)
        return found

    def _ended(self, timeout_s: float) -> str:
        assert self.process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        code = self.process.returncode
        self.close()
        return f"no answer within {timeout_s:g} s" if code is None else f"the process ended with exit code {code}"

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for stream in (self.process.stdin, self.process.stdout):
                with contextlib.suppress(OSError):
                    stream.close()  # type: ignore[union-attr]
            self.process = None


def main() -> int:
    parser = argparse.ArgumentParser(description="Time tasks (JSON lines on stdin) in eager mode and compiled.")
    parser.add_argument("--target", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--no-compile", action="store_true", help="eager times only")
    parser.add_argument("--keep-sizes", action="store_true", help="never try another batch size")
    parser.add_argument("--budget-s", type=float, default=0.0, help="stop after this time; what was timed is written")
    parser.add_argument("--timeout-s", type=float, default=60.0, help="limit for one measurement of one task")
    parser.add_argument("--memory-gb", type=float, default=16.0, help="no other batch size that needs more")
    parser.add_argument("--skip", type=Path, metavar="FILE", help="times of an earlier call: leave out what is in it")
    flags = parser.parse_args()
    child = Child(flags.target, int(flags.memory_gb * (1 << 30)))
    try:
        rows = list(_rows(sys.stdin))
        known = _known(flags.skip)
        until = time.monotonic() + flags.budget_s if flags.budget_s else float("inf")
        times = _time_all(rows, known, child, flags, until)
    except NoDevice as error:
        sys.stderr.write(f"time_tasks: {error}\n")
        return 3
    finally:
        child.close()
    sys.stderr.write(_summary(times, len(rows)))
    return 0


def _time_all(
    rows: list[Row], known: dict[str, Row], child: Child, flags: argparse.Namespace, until: float
) -> list[Row]:
    """Eager times first: they decide which tasks can stay, and take a small part of the time."""
    times = dict(known)
    for row in rows:
        if row["sha256"] not in times and time.monotonic() < until:
            resize = not flags.keep_sizes and bool((row.get("about") or {}).get("twin_sha256"))
            job = {"what": "eager", "code": row["code"], "resize": resize}
            times[row["sha256"]] = _answered(row, job, child, flags.timeout_s)
            _tell(times[row["sha256"]])
    for row in rows if not flags.no_compile else []:
        before = times.get(row["sha256"], {})
        if _in_band(before) and "compile_ms" not in before and time.monotonic() < until:
            job = {"what": "compile", "code": _resized(row, before)}
            times[row["sha256"]] = before | _answered(row, job, child, flags.timeout_s)
            _tell(times[row["sha256"]])
    if time.monotonic() >= until:
        sys.stderr.write(f"stopped after {flags.budget_s:g} s; --skip with what was written goes on\n")
    return [times[row["sha256"]] for row in rows if row["sha256"] in times]


def _answered(row: Row, job: Row, child: Child, timeout_s: float) -> Row:
    answer = child.ask(job, timeout_s=timeout_s)
    code = answer.pop("code", None)
    if code is not None:
        answer["resized_sha256"] = _sha256(code)
        row["resized"] = code
    about = {"task_id": row.get("task_id", ""), "sha256": row["sha256"], "how": "one after another"}
    return about | child.where | answer


def _resized(row: Row, before: Row) -> str:
    """The text with the batch size that was measured."""
    if "batch_size" not in before:
        return str(row["code"])
    if "resized" not in row:  # measured by an earlier call
        lines = str(row["code"]).split("\n")
        row["resized"] = "\n".join(
            f"batch_size = {before['batch_size']}" if line.startswith("batch_size = ") else line for line in lines
        )
    return str(row["resized"])


def _rows(stream: IO[str]) -> Iterator[Row]:
    for line in stream:
        if line.strip():
            row = json.loads(line)
            yield row | {"sha256": _sha256(row["code"])}


def _known(path: Path | None) -> dict[str, Row]:
    """What an earlier call wrote; a line that is torn is measured again."""
    found: dict[str, Row] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path else []:
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            found[row["sha256"]] = row
    return found


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _tell(row: Row) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()
    sys.stderr.write(_line(row))


def _in_band(row: Row) -> bool:
    return "error" not in row and LOW_MS <= row.get("eager_ms", 0.0) <= HIGH_MS


def _line(row: Row) -> str:
    if "error" in row:
        return f"{row['task_id']:48}  {row['error'][:120]}\n"
    compiled = f"{row['compile_ms']:10.3f}" if "compile_ms" in row else f"{'-':>10}"
    remark = "" if _in_band(row) else "  out of band"
    remark += "" if row.get("equal", True) else "  differs"
    remark += f"  batch size {row['batch_size']}" if "batch_size" in row else ""
    return f"{row['task_id']:48}{row['eager_ms']:10.3f}{compiled}{remark}\n"


def _summary(times: list[Row], count: int) -> str:
    good, broken = sum(map(_in_band, times)), sum("error" in row for row in times)
    resized, compiled = sum("batch_size" in row for row in times), sum("compile_ms" in row for row in times)
    differ = sum(row.get("equal") is False for row in times)
    return (
        f"{len(times)} of {count} tasks: {good} in {LOW_MS:g} to {HIGH_MS:g} ms, "
        f"{len(times) - good - broken} outside, {broken} failed; {resized} with another batch size; "
        f"{compiled} compiled, {differ} of them with another output\n"
    )


if __name__ == "__main__":
    sys.exit(main())

"""The parent's side: forks one process per candidate, bounds its time and memory, and turns every end into a report.

Started by admit_task.py as `python -I lanes.py FLAGS-AS-JSON`, candidates as JSON lines on stdin or in a file that
grows (sources.py), one report per line on stdout in the order in which candidates end. Covered: a candidate that
raises, hangs, exits, crashes, forks, floods its output or asks for more memory than there is. Not covered: a candidate
that forges its own report (the judge's own controls look at every task again); files and network, which are the
sandbox's business.
"""

import contextlib
import functools
import json
import os
import select
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from referee import confine, removal

from admission.sources import Given, Queue, Source

POLL_S: Final = 0.05
RESULT_BYTES: Final = 1 << 20
FILE_BYTES: Final = 2 << 30


@dataclass(frozen=True)
class Options:
    """How candidates are examined. `memory_bytes` bounds the address space of one candidate's process."""

    target: str = "cpu"
    lanes: int = 1
    timeout_s: float = 90.0
    memory_bytes: int = 6 << 30
    low_ms: float = 1.0
    high_ms: float = 100.0
    compile: bool = True
    flagged_uncompiled: bool = False
    threads: int = 1
    scratch: str = "/tmp"
    queue: str = ""


@dataclass
class Lane:
    """One candidate that is being examined."""

    id: str
    pid: int
    reader: int
    started: float
    deadline: float
    data: bytearray = field(default_factory=bytearray)
    closed: bool = False

    @property
    def answered(self) -> bool:
        return self.closed or len(self.data) > RESULT_BYTES or b'"status"' in self.data.rpartition(b"\n")[0][-65536:]


def serve(options: Options, source: Source, out: TextIO) -> None:
    """Examine all candidates; returns when the last one has been reported."""
    lanes: list[Lane] = []
    while lanes or not source.ended:
        while len(lanes) < options.lanes and (candidate := source.take()) is not None:
            lanes.append(_start(options, candidate))
        if not lanes:
            time.sleep(POLL_S)
            continue
        full = len(lanes) == options.lanes or source.ended
        for lane in _ended(lanes, at_most_s=float("inf") if full else POLL_S):
            lanes.remove(lane)
            report = _finish(lane, options, others={other.pid for other in lanes})
            out.write(json.dumps(report) + "\n")
            out.flush()


def _start(options: Options, candidate: dict[str, Any]) -> Lane:
    reader, writer = os.pipe()
    if "transformers" in str(candidate.get("model_py")):
        _import_transformers()
    started = time.monotonic()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            _examine(options, str(candidate.get("model_py", "")), writer)
        finally:
            os._exit(70)
    os.close(writer)
    os.set_blocking(reader, False)
    return Lane(str(candidate["id"]), pid, reader, started, started + options.timeout_s)


def _examine(options: Options, text: str, writer: int) -> None:
    """In the child: no streams, own session, limits, a folder of its own."""
    os.setsid()
    confine.die_with_parent()
    silence = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(silence, number)
    sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
    home = _home(options, os.getpid())
    home.mkdir(parents=True, exist_ok=True)
    os.environ.update(HOME=str(home), TMPDIR=str(home))
    os.chdir(home)
    if options.target == "cpu":
        confine.limit_resources(memory_bytes=options.memory_bytes, file_bytes=FILE_BYTES)
    from admission import examine

    examine.main(text, options, writer)


def _home(options: Options, pid: int) -> Path:
    return Path(options.scratch) / f"candidate-{pid}"


def _ended(lanes: list[Lane], *, at_most_s: float) -> list[Lane]:
    """Waits until at least one lane has answered or is over its time, or nothing has come for `at_most_s`."""
    while True:
        remaining = max(0.0, min(lane.deadline for lane in lanes) - time.monotonic())
        readable, _, _ = select.select([lane.reader for lane in lanes], [], [], min(remaining, at_most_s))
        for lane in lanes:
            if lane.reader in readable:
                _read(lane)
        now = time.monotonic()
        if done := [lane for lane in lanes if lane.answered or now >= lane.deadline]:
            return done
        if not readable and at_most_s < remaining:
            return []


def _read(lane: Lane) -> None:
    with contextlib.suppress(BlockingIOError):
        chunk = os.read(lane.reader, 1 << 16)
        lane.data += chunk
        lane.closed = not chunk


def _finish(lane: Lane, options: Options, *, others: set[int]) -> dict[str, Any]:
    os.close(lane.reader)
    ended = _end(lane, others)
    removal.remove(_home(options, lane.pid))
    report = {"id": lane.id, "seconds": round(time.monotonic() - lane.started, 3)}
    phase = "starting"
    for line in bytes(lane.data).splitlines():
        with contextlib.suppress(ValueError):
            message = json.loads(line)
            if not isinstance(message, dict):
                continue
            if message.get("status") in ("admitted", "refused"):
                return {**message, **report}
            phase = str(message.get("phase", phase))
    code, detail = _untold(ended, lane, phase, options)
    reasons = [{"code": code, "detail": detail}]
    return {"status": "refused", "stage": phase, "reasons": reasons, "flags": [], "facts": {}, **report}


def _end(lane: Lane, others: set[int]) -> int | None:
    """Kill the candidate's session and what it left elsewhere; its wait status, None where it had to be killed."""
    pid, status = os.waitpid(lane.pid, os.WNOHANG)
    if not pid and lane.closed:  # it closed the pipe, so that it is about to end
        until = time.monotonic() + 2.0
        while not pid and time.monotonic() < until:
            time.sleep(0.01)
            pid, status = os.waitpid(lane.pid, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(lane.pid, signal.SIGKILL)
    if not pid:
        os.waitpid(lane.pid, 0)
    for other in others:  # it may have been killed while it made them stand still
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(other, signal.SIGCONT)
    _kill_strays(others)
    return status if pid else None


def _kill_strays(others: set[int]) -> None:
    """Children that are no lane: a candidate's daemons, which this process has adopted."""
    text = Path(f"/proc/self/task/{os.getpid()}/children")
    for _ in range(100):
        try:
            children = {int(word) for word in text.read_text().split()} - others
        except (OSError, ValueError):
            return
        if not children:
            return
        for child in children:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def _untold(ended: int | None, lane: Lane, phase: str, options: Options) -> tuple[str, str]:
    """Why a candidate gave no report."""
    if ended is None and time.monotonic() >= lane.deadline:
        return "task.hangs", f"{phase} did not end within {options.timeout_s:g} s"
    if ended is not None and os.WIFSIGNALED(ended):
        number = os.WTERMSIG(ended)
        more = " (out of memory?)" if number == signal.SIGKILL else ""
        return "task.crashes", f"the process died by {signal.Signals(number).name} during {phase}{more}"
    code = os.WEXITSTATUS(ended) if ended is not None else 0
    return "task.exits", f"the process ended by itself (exit code {code}) during {phase}"


def _warm(options: Options) -> None:
    """torch.compile imports half of itself at the first use, and builds a precompiled header; once here is enough."""
    if options.compile and options.target == "cpu":
        from admission import warming

        warming.compile_once()


def main() -> int:
    options = Options(**json.loads(sys.argv[1]))
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    confine.adopt_orphans()
    (Path(options.scratch) / "inductor").mkdir(parents=True, exist_ok=True)
    if options.queue:
        source: Source = Queue(Path(options.queue))
    else:
        source = Given([json.loads(line) for line in sys.stdin.buffer if line.strip()])
    import_torch()
    _warm(options)
    serve(options, source, out)
    return 0


def import_torch() -> None:
    """What children need, once: torch and torch.compile's parts."""
    import torch
    import torch._dynamo
    import torch._inductor.compile_fx

    torch.set_grad_enabled(False)
    # With one thread, as the judge's template does: the first call chooses MKL's kernels for all processes to come.
    torch.set_num_threads(1)
    torch.tanh(torch.zeros(64))


@functools.cache
def _import_transformers() -> None:
    with contextlib.suppress(ImportError):
        __import__("transformers.activations")


if __name__ == "__main__":
    sys.exit(main())

"""The parent's side: forks a process per problem, stops all others while one is timed, bounds time, keeps what ended.

Covered: a problem that raises, hangs, crashes or needs more memory than is left beside others (it is tried once more,
alone). Not covered: problems that mean harm; they are references, which somebody trusts.
"""

import contextlib
import json
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from referee import confine, removal

Row = dict[str, Any]
ALONE: Final = ("task.out_of_memory", "task.crashes")
"""What may have been the neighbours' fault."""


@dataclass(frozen=True)
class Plan:
    """`lanes` problems are prepared at once; none is begun after `budget_s` (0: no bound)."""

    target: str
    precision: str
    lanes: int
    timeout_s: float
    timing_s: float
    budget_s: float
    scratch: Path


@dataclass
class Lane:
    """One problem under way; `alone` is its second try."""

    row: Row
    pid: int
    reader: int
    writer: int
    deadline: float
    alone: bool
    data: bytearray = field(default_factory=bytearray)
    phase: str = "starting"
    ready: bool = False
    closed: bool = False
    result: Row | None = None

    def read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(self.reader, 1 << 16)
            self.closed = not chunk
            self.data += chunk
        *lines, rest = bytes(self.data).split(b"\n")
        self.data = bytearray(rest)
        for line in lines:
            message = json.loads(line)
            self.phase = str(message.get("phase", self.phase))
            self.ready = self.ready or bool(message.get("ready"))
            if "status" in message:
                self.result = message


class Crew:
    """All problems of one call. `tell` gets every row as soon as it is known."""

    def __init__(self, plan: Plan, rows: list[Row], tell: Callable[[Row], None]) -> None:
        self.plan, self.tell = plan, tell
        self.waiting = deque((row, False) for row in rows)
        self.again: deque[tuple[Row, bool]] = deque()
        self.lanes: list[Lane] = []
        self.began = time.monotonic()

    def run(self) -> None:
        while self._fill() or self.lanes:
            self._listen()
            for lane in [lane for lane in self.lanes if self._is_over(lane)]:
                self._finish(lane)
            for lane in [lane for lane in self.lanes if lane.ready]:
                self._time(lane)

    def _fill(self) -> bool:
        if self.plan.budget_s and time.monotonic() - self.began > self.plan.budget_s:
            self.waiting.clear()
            self.again.clear()
        while self.waiting and len(self.lanes) < self.plan.lanes:
            self.lanes.append(self._start(*self.waiting.popleft()))
        if not self.lanes and self.again:
            self.lanes.append(self._start(*self.again.popleft()))
        return bool(self.waiting or self.again)

    def _start(self, row: Row, alone: bool) -> Lane:
        reader, inner_writer = os.pipe()
        inner_reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reader)
                os.close(writer)
                self._work(row, inner_reader, inner_writer)
            finally:
                os._exit(70)
        os.close(inner_reader)
        os.close(inner_writer)
        os.set_blocking(reader, False)
        return Lane(row, pid, reader, writer, time.monotonic() + self.plan.timeout_s, alone)

    def _work(self, row: Row, reader: int, writer: int) -> None:
        os.setsid()
        confine.die_with_parent()
        for lane in self.lanes:  # the ends of others' pipes: they must close when their owner ends
            os.close(lane.reader)
            os.close(lane.writer)
        silence = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(silence, number)
        home = self.plan.scratch / f"problem-{os.getpid()}"
        home.mkdir(parents=True)
        os.environ.update(HOME=str(home), TMPDIR=str(home), TORCHINDUCTOR_CACHE_DIR=str(home / "inductor"))
        os.environ.update(TRITON_CACHE_DIR=str(home / "triton"))
        os.chdir(home)
        from baselining import one

        def say(message: Row) -> None:
            os.write(writer, json.dumps(message).encode() + b"\n")

        one.measured(
            str(row["code"]),
            target=self.plan.target,
            precision=self.plan.precision,
            timing_s=self.plan.timing_s,
            say=say,
            wait=lambda: void(os.read(reader, 1)),
        )

    def _listen(self) -> None:
        """Until somebody says something or is over time."""
        if not self.lanes:
            return
        remaining = min(max(0.0, min(lane.deadline for lane in self.lanes) - time.monotonic()), 1.0)
        readable, _, _ = select.select([lane.reader for lane in self.lanes], [], [], remaining)
        for lane in self.lanes:
            if lane.reader in readable:
                lane.read()

    def _is_over(self, lane: Lane) -> bool:
        return lane.result is not None or lane.closed or time.monotonic() > lane.deadline

    def _time(self, lane: Lane) -> None:
        """Everybody else stands still meanwhile; the time that costs them is theirs again afterwards."""
        others = [other for other in self.lanes if other is not lane]
        began = time.monotonic()
        for other in others:
            signal_group(other.pid, signal.SIGSTOP)
        lane.ready, lane.phase = False, "timing"
        with contextlib.suppress(BrokenPipeError):
            os.write(lane.writer, b"!")
        while not self._is_over(lane):
            if select.select([lane.reader], [], [], 1.0)[0]:
                lane.read()
        self._finish(lane)
        for other in others:
            signal_group(other.pid, signal.SIGCONT)
            other.deadline += time.monotonic() - began

    def _finish(self, lane: Lane) -> None:
        self.lanes.remove(lane)
        result = lane.result or untold(lane, self.plan.timeout_s)
        signal_group(lane.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(lane.pid, 0)
        os.close(lane.reader)
        os.close(lane.writer)
        removal.remove(self.plan.scratch / f"problem-{lane.pid}")
        if result["status"] == "failed" and result["code"] in ALONE and not lane.alone and self.plan.lanes > 1:
            self.again.append((lane.row, True))
            return
        head = {name: lane.row[name] for name in ("task_id", "sha256")}
        about = {"target": self.plan.target, "precision": self.plan.precision}
        self.tell({**head, **about, **result, "alone": lane.alone})


def untold(lane: Lane, timeout_s: float) -> Row:
    """Why a problem gave no row."""
    if not lane.closed:
        return failed("task.hangs", f"{lane.phase} did not end within {timeout_s:g} s")
    with contextlib.suppress(ChildProcessError):
        _, status = os.waitpid(lane.pid, 0)
        if os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            return failed("task.crashes", f"the process died by {name} during {lane.phase}")
    return failed("task.exits", f"the process ended by itself during {lane.phase}")


def failed(code: str, detail: str) -> Row:
    return {"status": "failed", "code": code, "detail": detail}


def signal_group(pid: int, number: signal.Signals) -> None:
    """The problem's session: itself, and the compilers that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def void(_: object) -> None:
    """Takes what nobody needs."""

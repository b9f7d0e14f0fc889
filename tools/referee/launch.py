"""The referee's handles on its template process and its workers: start, ask, time a window, stop, end."""

import contextlib
import math
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from building import toolchain

from referee import confine, flags, freeze, inherited, memory, pages, protocol

# Without these the same reference takes 1.3 to 2 times as long, by page faults alone; both sides get them.
HEAP: Final = {
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "4294967296",
    "MALLOC_TOP_PAD_": "268435456",
}
# How long libgomp's threads spin at a barrier, in turns of about 50 ns. By default it is 300,000, so that on a machine
# with other work a thread burns its whole slice while the one that it waits for has no CPU: a reference of seven
# pointwise operators took 18 to 66 ms a call, with 2,000 turns 5 to 17 ms (two cores, three other busy processes).
# That would make every kernel with fewer barriers look faster than it is.
SPIN: Final = {"GOMP_SPINCOUNT": "2000"}
START_LIMIT_S: Final = 120.0
PEEK_BYTES: Final = 1 << 17
ERROR_TAIL: Final = 600


FLAGS: Final = {True: "numeric.precision_flag", False: "task.precision_flag"}
AWAKE: Final = "the process went on running while it was stopped"


class WorkerFailure(Exception):
    """A worker did not do what it was asked: `kind` is crash, exit, timeout, garbage, or what the worker itself
    named.
    """

    def __init__(self, worker: str, kind: str, detail: str) -> None:
        super().__init__(f"{worker}: {kind}: {detail}")
        self.worker = worker
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True)
class Window:
    """One timed stretch in which a worker could run: from letting it go to seeing it stopped."""

    wall_ns: int
    reply_ns: int
    cpu_ns: int
    waited_ns: int
    reply: protocol.Received
    sealed: Any = None  # what the referee took from the stopped worker before the clock ended

    def protocol_ns(self) -> int:
        """What the window took beside its calls, as a trusted worker tells: waking, addresses, reply, stop, seal."""
        return max(0, self.wall_ns - int(self.reply.fields["ran_ns"]))


Look = Callable[["Worker | None"], float]


@dataclass
class Worker:
    """A forked worker; stopped whenever nothing is asked of it."""

    name: str
    pid: int
    channel: socket.socket
    store: memory.Memory
    descriptors: tuple[int, ...]
    maps: int
    table: int | None
    errors: int
    nursery: "Nursery"
    hostile: bool = False
    stopped: bool = False
    held: dict[int, int] = field(default_factory=dict)
    ended: bool = False
    outside_cpu_ns: int = field(default=0)
    in_force: dict[str, str] = field(default_factory=dict)  # torch's precision flags as the judge set them

    def call(
        self, op: str, *, timeout_s: float, blob: bytes = b"", descriptors: tuple[int, ...] = (), **fields: Any
    ) -> protocol.Received:
        """Ask and wait; a reply that names an error raises."""
        try:
            self._let_go()
            protocol.send(self.channel, {"op": op, **fields}, blob=blob, descriptors=descriptors)
            reply = protocol.receive(self.channel, timeout_s=timeout_s)
        except Exception as error:
            raise self._failure(error, op) from error
        self._hold()
        self._note_held()
        return self._checked(reply)

    def window(
        self,
        *,
        timeout_s: float,
        seal: Callable[[protocol.Received], Any] | None = None,
        look: Look | None = None,
        **fields: Any,
    ) -> Window:
        """Let the stopped worker run one batch; the clock ends when all its threads are seen stopped.

        A stopped process may still have work on a GPU: there the clock ends when `seal` has taken its samples of the
        outputs. `look` is called with the worker stopped on its way, now and then: it answers after how many seconds it
        wants to look next.
        """
        assert self.stopped
        # Before the clock: it takes half a millisecond, and for trusted workers, whose time is taken off, nothing.
        self.check_stayed()
        pause = math.inf if look is None else look(None)
        try:
            protocol.send(self.channel, {"op": "go", **fields})
            if seal is None:
                freeze.spread(self.pid)
            before = freeze.scheduled_ns(self.pid)
            start = time.perf_counter_ns()
            deadline = time.monotonic() + timeout_s
            while True:
                self._resume()
                if seal is None:
                    freeze.loosen(self.pid)
                left = min(pause, max(0.0, deadline - time.monotonic()))
                ready, _, _ = select.select([self.channel], [], [], left)
                replied = time.perf_counter_ns()
                if seal is not None and ready and self._whole_reply():
                    os.kill(self.pid, signal.SIGSTOP)  # what a thread still does now comes too late for the seal
                    break
                self._hold()
                end = time.perf_counter_ns()
                if ready and self._whole_reply():
                    break
                if look is not None:
                    pause = look(self)
                if time.monotonic() > deadline:
                    raise protocol.ChannelTimeout("no reply in time")
            reply = protocol.receive(self.channel, timeout_s=1.0)
        except Exception as error:
            raise self._failure(error, "go") from error
        sealed = None
        if seal is not None:
            try:
                sealed = seal(self._checked(reply))
                end = time.perf_counter_ns()
            finally:
                self._held("go")
        self.check_alone()
        self._note_held()
        after = freeze.scheduled_ns(self.pid)
        return Window(
            wall_ns=end - start,
            reply_ns=replied - start,
            cpu_ns=freeze.ran_ns(after) - freeze.ran_ns(before),
            waited_ns=freeze.waited_ns(self.pid, before, after, wall_ns=end - start),
            reply=self._checked(reply),
            sealed=sealed,
        )

    def _whole_reply(self) -> bool:
        """Whether the reply is complete in the socket's buffer (a long one comes in pieces)."""
        waiting = self.channel.recv(PEEK_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        if not waiting:
            raise protocol.ChannelClosed("end of stream")
        if len(waiting) < protocol.HEADER.size:
            return False
        return (
            len(waiting) >= protocol.HEADER.size + sum(protocol.HEADER.unpack_from(waiting))
            or len(waiting) == PEEK_BYTES
        )

    def _let_go(self) -> None:
        if self.stopped:
            self.check_stayed()
            self._resume()

    def _resume(self) -> None:
        self.stopped = False
        freeze.resume(self.pid)

    def _hold(self) -> None:
        freeze.stop(self.pid)
        self.stopped = True
        self.held = {}

    def _note_held(self) -> None:
        """Trusted workers stay stopped of themselves, and a look at all threads of a process takes milliseconds."""
        if not self.hostile:
            return
        held = freeze.settled(self.pid)
        if held is None:
            raise WorkerFailure(self.name, "awake", AWAKE)
        self.held = held
        self.check_flags()

    def check_stayed(self) -> None:
        """Raise where a thread has run since the worker was stopped: a timer of its own can continue it."""
        if self.held and freeze.switches(self.pid) != self.held:
            raise WorkerFailure(self.name, "awake", AWAKE)

    def note_flags(self) -> None:
        """The precision flags that are in force now are the judge's; nothing foreign has run here yet."""
        self.in_force = flags.read(self.descriptors[0], self.nursery.places)

    def check_flags(self) -> None:
        """Raise where one of torch's global precision flags is not as the judge set it. Only while stopped."""
        if not self.in_force:
            return
        changes = flags.changes(self.in_force, flags.read(self.descriptors[0], self.nursery.places))
        if changes:
            raise WorkerFailure(self.name, FLAGS[self.hostile], f"{changes}; {flags.LEAVE_THEM}")

    def check_alone(self) -> None:
        """Raise where a hostile worker's processes live on beside it while it is stopped."""
        if self.hostile and self.nursery.company(self.pid):
            raise WorkerFailure(self.name, "company", "a process that it has started runs on while it is stopped")

    def _held(self, op: str) -> None:
        try:
            self._hold()
        except Exception as error:
            raise self._failure(error, op) from error

    def _checked(self, reply: protocol.Received) -> protocol.Received:
        error = reply.fields.get("error")
        if error is not None:
            raise WorkerFailure(self.name, str(error)[:60], str(reply.fields.get("detail", ""))[:2000])
        return reply

    def _failure(self, error: Exception, op: str) -> WorkerFailure:
        if isinstance(error, protocol.ChannelTimeout):
            self.end()
            waited = "forward did not return in time" if op == "go" else f"no answer to '{op}' in time"
            return WorkerFailure(self.name, "timeout", waited)
        if isinstance(error, protocol.ChannelGarbage):
            self.end()
            return WorkerFailure(self.name, "garbage", f"the answer to '{op}' is no message: {error}")
        tail = self.error_tail()
        ending = self.end()
        if isinstance(error, (protocol.ChannelClosed, freeze.Gone, OSError)):
            if "signal" in ending and ending["signal"] == signal.SIGSYS:
                return WorkerFailure(
                    self.name, "syscall", "ended by the system call filter (ptrace or another process's memory)"
                )
            if "signal" in ending and ending["signal"] == signal.SIGKILL:
                return WorkerFailure(self.name, "killed", f"killed during '{op}' (memory?)")
            if "signal" in ending:
                return WorkerFailure(
                    self.name, "crash", f"{_signal_name(ending['signal'])} during '{op}'. {tail}".strip()
                )
            return WorkerFailure(self.name, "exit", f"exit code {ending.get('exit')} during '{op}'. {tail}".strip())
        raise error

    def mappings(self) -> str:
        """/proc/PID/maps, opened when the process could still be looked into."""
        os.lseek(self.maps, 0, os.SEEK_SET)
        parts = []
        while part := os.read(self.maps, 1 << 16):
            parts.append(part)
        return b"".join(parts).decode("utf-8", "replace")

    def error_tail(self) -> str:
        with contextlib.suppress(OSError):
            return os.read(self.errors, 65536).decode("utf-8", "replace")[-ERROR_TAIL:]
        return ""

    def end(self) -> protocol.Message:
        """Kill the worker if it still runs; how it ended."""
        if self.ended:
            return {}
        self.ended = True
        # A worker that closes its socket and lives on has to be ended before anybody waits for it.
        if not _ends_by_itself(self.pid):
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
        ending = self.nursery.reap(self.pid)
        for number in (*self.descriptors, self.maps, self.errors):
            os.close(number)
        self.channel.close()
        return ending


def _ends_by_itself(pid: int) -> bool:
    for _ in range(20):
        try:
            freeze.thread_states(pid)
        except freeze.Gone:
            return True
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.005)
    return False


class Nursery:
    """The template process and the workers that were forked from it."""

    def __init__(self, *, threads: int, target: str) -> None:
        self.target = target
        self.workers: list[Worker] = []
        self.found: list[int] = []
        self.places: tuple[flags.Place, ...] = ()  # of torch's precision flags, in every worker
        ours, theirs = socket.socketpair()
        template = Path(__file__).resolve().parent / "template.py"
        # The child must have the socket as descriptor 3 and nothing else.
        os.set_inheritable(theirs.fileno(), True)
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-B",
                "-c",
                "import os,sys; os.dup2(int(sys.argv[1]),3,inheritable=True); os.closerange(4,4096); "
                "os.execv(sys.executable,[sys.executable,'-I','-B',sys.argv[2]])",
                str(theirs.fileno()),
                str(template),
            ],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=sys.stderr.fileno(),
            env=environment(threads),
        )
        theirs.close()
        self.control = ours
        self.ready = False

    def wait(self) -> None:
        if not self.ready:
            try:
                ready = protocol.receive(self.control, timeout_s=START_LIMIT_S)
            except (protocol.ChannelClosed, protocol.ChannelTimeout) as error:
                raise WorkerFailure("template", "exit", "python could not import torch") from error
            self.places = flags.places_from(ready.fields["flags"])
            self.ready = True

    def fork(self, name: str) -> Worker:
        from referee import stores  # it needs torch, which the template imports meanwhile

        self.wait()
        ours, theirs = socket.socketpair()
        errors, errors_in = os.pipe()
        os.set_blocking(errors, False)
        os.set_blocking(errors_in, False)
        protocol.send(self.control, {"op": "fork"}, descriptors=(theirs.fileno(), errors_in))
        theirs.close()
        os.close(errors_in)
        pid = int(protocol.receive(self.control, timeout_s=START_LIMIT_S).fields["pid"])
        descriptor, table = _opened(pid), pages.open_table(pid)
        worker = Worker(
            name=name,
            pid=pid,
            channel=ours,
            store=stores.HostMemory(descriptor) if self.target == "cpu" else stores.DeviceMemory(),
            descriptors=(descriptor,) if table is None else (descriptor, table),
            maps=os.open(f"/proc/{pid}/maps", os.O_RDONLY | os.O_CLOEXEC),
            table=table,
            errors=errors,
            nursery=self,
        )
        self.workers.append(worker)
        return worker

    def reap(self, pid: int) -> protocol.Message:
        try:
            protocol.send(self.control, {"op": "reap", "pid": pid})
            return protocol.receive(self.control, timeout_s=10.0).fields
        except (protocol.ChannelClosed, protocol.ChannelTimeout):
            return {"exit": None}

    def sweep(self, *, trusted: list[Worker]) -> list[int]:
        """Kill processes that nobody but a submission can have started; the ids found."""
        found = self.kill_strangers(trusted=trusted)
        self.found += found
        return found

    def kill_strangers(self, *, trusted: list[Worker]) -> list[int]:
        """The same where nobody is to be blamed: no submission has run yet."""
        known = [self.process.pid, *(worker.pid for worker in self.workers)]
        free = [worker.pid for worker in trusted if not worker.ended]
        return freeze.kill_all(os.getpid(), known=known, free=free)

    def silence(self) -> None:
        """Nothing of a submission runs any more; it takes as long as sending the signals."""
        for worker in self.workers:
            if not worker.ended:
                with contextlib.suppress(OSError):
                    os.kill(worker.pid, signal.SIGKILL)
        self.kill_strangers(trusted=[])

    def company(self, pid: int) -> list[int]:
        """Living processes that a worker has started: its children, and orphans, which come to this process."""
        known = {self.process.pid, *(worker.pid for worker in self.workers)}
        found: set[int] = set()
        for parent in (pid, self.process.pid, os.getpid()):
            found |= freeze.children(parent)
        return sorted(found - known)

    def close(self) -> None:
        self.silence()  # all at once: giving back a GPU's memory takes each of them a while
        for worker in self.workers:
            worker.end()
        self.process.kill()
        self.process.wait()
        freeze.kill_all(os.getpid(), known=[], free=[])


def _opened(pid: int) -> int:
    """The worker becomes readable within a moment after its birth."""
    deadline = time.monotonic() + 10.0
    while True:
        try:
            return memory.open_memory(pid)
        except OSError as error:
            if time.monotonic() > deadline:
                raise WorkerFailure("template", "memory", f"/proc/{pid}/mem cannot be opened: {error}") from error
            time.sleep(0.001)


def environment(threads: int) -> dict[str, str]:
    """The whole environment of template and workers; nothing else is inherited."""
    path = f"{Path(sys.executable).parent}:{toolchain.search_path()}"
    kept = inherited.variables()
    return {
        "PATH": path,
        "LANG": "C.UTF-8",
        "HOME": "/nonexistent",
        "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OMP_DYNAMIC": "FALSE",
        "MAX_JOBS": str(threads),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        **HEAP,
        **SPIN,
        **kept,
        "CUDA_VISIBLE_DEVICES": kept.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0],
    }


def harden_referee() -> None:
    """Before anything secret exists: nobody may read this process, and orphans below it stay below it."""
    confine.set_dumpable(False)
    confine.adopt_orphans()


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"

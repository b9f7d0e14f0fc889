"""Stops a worker, proves that it stays stopped while it is read, and finds processes that it left beside itself.

Covers: threads (a stopped process has none running), children and daemons (found through their parents, killed,
reported), a process that continues itself by a timer (its context switches are counted). Does not cover work in the
kernel on its behalf (io_uring and aio are refused by the filter in confine.py).
"""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

STOP_LIMIT_S = 5.0
IDLE = 0.02  # share of a window in which a thread ran: less did no work in it
THREADS = 17  # num_threads of proc_pid_stat(5), counted from the state on


class Gone(Exception):
    """The process has ended."""


def thread_states(pid: int) -> dict[int, str]:
    """State letter of every thread."""
    states = {}
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError as error:
        raise Gone(str(pid)) from error
    for thread in threads:
        with suppress(OSError):
            states[int(thread.name)] = chr(_stat(thread)[0])
    if not states or all(state in "ZX" for state in states.values()):
        raise Gone(str(pid))
    return states


def stop(pid: int) -> None:
    """Send SIGSTOP until every thread is stopped: a SIGCONT that comes meanwhile takes it back."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + STOP_LIMIT_S
    while any(state not in "TZX" for state in thread_states(pid).values()):
        if time.monotonic() > deadline:
            raise Gone(f"{pid} does not stop")
        time.sleep(0)
        os.kill(pid, signal.SIGSTOP)


def resume(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)


def switches(pid: int) -> dict[int, int] | None:
    """Context switches of every thread so far, or None when a thread is not stopped: equal before and after means it
    never ran.
    """
    counts = {}
    for thread, state in thread_states(pid).items():
        if state not in "TZX":
            return None
        with suppress(OSError):
            total = 0
            for line in Path(f"/proc/{pid}/task/{thread}/status").read_text().splitlines():
                if "ctxt_switches" in line:
                    total += int(line.split()[1])
            counts[thread] = total
    return counts


def settled(pid: int) -> dict[int, int] | None:
    """Context switches of a process just stopped, when two looks agree (the last switch may be counted a moment after
    the state is shown); None where a thread runs again.
    """
    before = switches(pid)
    for _ in range(10):
        now = switches(pid)
        if now is None or now == before:
            return now
        before = now
    return None


def children(pid: int) -> set[int]:
    """Living children of a process's threads: what its own record says, in a fraction of the time that a look at all
    processes takes.
    """
    found: set[int] = set()
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError, ValueError):
                found.update(int(text) for text in (thread / "children").read_text().split())
    return {child for child in found if _lives(child)}


def _lives(pid: int) -> bool:
    try:
        return _runs(_stat(Path(f"/proc/{pid}")).split())
    except (OSError, ValueError, IndexError):
        return False


def _runs(fields: list[bytes]) -> bool:
    """A process whose first thread has ended is shown as a zombie while its other threads go on."""
    return fields[0] not in (b"Z", b"X") or int(fields[THREADS]) > 1


def _stat(folder: Path) -> bytes:
    """The record of a process or thread from its state letter on: a name before it may hold anything."""
    record = (folder / "stat").read_bytes()
    return record[record.rindex(b")") + 2 :]


def spread(pid: int) -> None:
    """Give every thread a CPU of its own, those that have computed most first: idle ones beside them count for nothing.

    On a busy machine the threads of a process that is stopped most of the time may lie on one CPU for good, and each
    barrier between them then costs a whole scheduler slice: a difference of ten times between two equal processes was
    seen. The first thread is bound until it has gone on (see `loosen`): whoever wakes it may draw it to the CPU of
    another.
    """
    cpus = sorted(os.sched_getaffinity(0))
    with suppress(OSError, ValueError, IndexError):
        last = int(_stat(Path(f"/proc/{pid}")).split()[36])
        if last in cpus:
            at = cpus.index(last)
            cpus = cpus[at + 1 :] + cpus[: at + 1]
        threads = thread_states(pid).keys() - {pid}
        ran = {thread: _schedstat(Path(f"/proc/{pid}/task/{thread}"))[0] for thread in threads}
        others = sorted(ran, key=ran.__getitem__, reverse=True)
        for index, thread in enumerate(others):
            os.sched_setaffinity(thread, {cpus[index % len(cpus)]})
        os.sched_setaffinity(pid, {cpus[-1]})


def loosen(pid: int) -> None:
    """Let the first thread go where it wants: threads that it starts inherit its CPUs."""
    with suppress(OSError):
        os.sched_setaffinity(pid, os.sched_getaffinity(0))


def _schedstat(thread: Path) -> tuple[int, int]:
    """Nanoseconds on a CPU and waiting for one; 0 for a thread that has ended."""
    with suppress(OSError, ValueError, IndexError):
        fields = (thread / "schedstat").read_text().split()
        return int(fields[0]), int(fields[1])
    return 0, 0


def scheduled_ns(pid: int) -> dict[int, tuple[int, int]]:
    """By thread: time on a CPU, and time spent waiting for one, so far; the scheduler's own count (0 where it does
    not tell).
    """
    found = {}
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found[int(thread.name)] = _schedstat(thread)
    return found


def ran_ns(scheduled: dict[int, tuple[int, int]]) -> int:
    """On a CPU, of all threads."""
    return sum(ran for ran, _ in scheduled.values())


def waited_ns(pid: int, before: dict[int, tuple[int, int]], after: dict[int, tuple[int, int]], *, wall_ns: int) -> int:
    """Between two readings, of the first thread and those that computed. torch.compile's idle threads wake up for
    microseconds once a batch and wait a scheduler slice behind one that computes, which holds nothing up.
    """
    waited = 0
    for thread, (ran, waits) in after.items():
        began = before.get(thread, (0, 0))
        if thread == pid or ran - began[0] >= IDLE * wall_ns:
            waited += waits - began[1]
    return waited


def parents() -> dict[int, int]:
    """Parent of every process that can be seen."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                fields = _stat(folder).split()
                if _runs(fields):
                    found[int(folder.name)] = int(fields[1])
    return found


def strangers(root: int, *, known: Iterable[int], free: Iterable[int]) -> list[int]:
    """Processes below `root` that are neither known nor below one of `free` (trusted workers may start compilers)."""
    above = parents()
    expected, trusted = set(known), set(free)
    found = []
    for pid in above:
        chain = _chain(pid, above)
        if pid not in expected and root in chain and not trusted.intersection(chain):
            found.append(pid)
    return found


def _chain(pid: int, above: dict[int, int]) -> set[int]:
    chain: set[int] = set()
    while (pid := above.get(pid, 0)) and pid not in chain:
        chain.add(pid)
    return chain


def kill_all(root: int, *, known: Iterable[int], free: Iterable[int]) -> list[int]:
    """Kill the strangers until none is left; the processes that were found."""
    seen: list[int] = []
    for _ in range(50):
        found = strangers(root, known=known, free=free)
        if not found:
            break
        seen += [pid for pid in found if pid not in seen]
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)
    return seen

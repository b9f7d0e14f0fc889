"""Runs jobs in threads of this process: many sandboxes, few devices.

Threads, because an episode waits for the model and for its sandbox; what computes are other processes.
"""

import os
import queue
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Final

from agent.batch.executor import Done, Job, Moved, Report, alone, in_use, run_job
from agent.batch.faults import Fault, detail_of
from agent.batch.leases import DevicePool
from agent.loop.control import Controls, Status
from agent.trajectory.events import Event, ReplyEvent

JITTER_S: Final = 0.5
LEAVE_S: Final = 30.0
PER_CORE: Final = 2
MOST_WORKERS: Final = 32


def default_workers() -> int:
    """Two episodes per core: one waits for the model while the other's commands run."""
    return min(MOST_WORKERS, PER_CORE * (os.cpu_count() or 1))


class LocalExecutor:
    """The Executor protocol in threads. `pool` may be shared with other executors of this process."""

    def __init__(self, workers: int, *, pool: DevicePool | None = None, jitter_s: float = JITTER_S) -> None:
        self.slots = workers
        self._pool = pool
        self._jitter_s = jitter_s
        self._reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self._running: dict[tuple[str, int], _Running] = {}
        self._lock = threading.Lock()

    def submit(self, job: Job) -> None:
        running = _Running(job)
        with self._lock:
            self._running[job.key] = running
        thread = threading.Thread(target=self._run, args=(running,), name=f"episode-{job.sample}", daemon=True)
        running.thread = thread
        thread.start()

    def next_report(self, *, timeout_s: float) -> Report | None:
        try:
            return self._reports.get(timeout=timeout_s) if timeout_s > 0 else self._reports.get_nowait()
        except queue.Empty:
            return None

    def stop(self, *, judge: bool) -> None:
        for running in self._all():
            # What has no turn yet has nothing to be judged: it stays owed.
            if judge and running.answered:
                running.controls.request_stop()
            else:
                running.controls.request_quit()
            running.wake.set()

    def close(self) -> None:
        """Asks what still runs to leave and waits a little for its sandboxes to be closed."""
        self.stop(judge=False)
        deadline = time.monotonic() + LEAVE_S
        for running in self._all():
            if running.thread is not None:
                running.thread.join(max(0.0, deadline - time.monotonic()))

    def _all(self) -> list["_Running"]:
        with self._lock:
            return list(self._running.values())

    def _run(self, running: "_Running") -> None:
        job = running.job
        try:
            # Many that start in one moment would inspect, compile and ask the server in one moment.
            running.wake.wait(random.uniform(0, self._jitter_s))
            done = Done(job=job, outcome="left", run=job.run) if running.controls.leaving else self._alone(running)
        except BaseException as error:  # noqa: BLE001 - a job without a report would be waited for forever
            done = Done(job=job, outcome="failed", run=job.run, fault=Fault.INTERNAL, detail=detail_of(error))
        with self._lock:
            self._running.pop(job.key, None)
        self.tell(done)

    def _alone(self, running: "_Running") -> Done:
        """A worker of a cluster that an earlier command used may still be at work on the sample."""
        job, device = running.job, self._pool.for_job() if self._pool else None
        with alone(job.folder) as free:
            if not free:
                return in_use(job)
            return run_job(job, listener=_Teller(running, self), controls=running.controls, device=device)

    def tell(self, report: Report) -> None:
        self._reports.put(report)


@dataclass
class _Running:
    job: Job
    controls: Controls = field(default_factory=Controls)
    wake: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    answered: bool = False
    """Whether the model has answered: an earlier attempt's turns are gone on with, so that they count."""

    def __post_init__(self) -> None:
        self.answered = self.job.run is not None


class _Teller:
    """Reports what a job does as it happens."""

    def __init__(self, running: _Running, executor: LocalExecutor) -> None:
        self._running = running
        self._key = running.job.key
        self._executor = executor

    def on_event(self, event: Event) -> None:
        self._running.answered |= isinstance(event, ReplyEvent)
        self._executor.tell(Moved(self._key, event=event))

    def on_status(self, status: Status) -> None:
        self._executor.tell(Moved(self._key, status=status))

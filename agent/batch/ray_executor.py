"""The executor beyond one machine: each job is a Ray task on a node that offers `sandbox`, at most one per unit of it.

All nodes and the driver see the collection's folder under one path. Covers: a lost worker or node is reported with
Fault.WORKER and the driver gives the job to another one, which goes on with the run; when the driver is lost, Ray ends
its tasks and the same command goes on from what is on disk. Not covered: the loss of the cluster's head node, which
ends the command, as a lost driver does.
"""

import contextlib
import os
import secrets
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from agent import __version__
from agent.batch.executor import Done, Job, Moved, Report
from agent.batch.faults import Fault, detail_of
from agent.batch.ray_device import ray_module
from agent.batch.ray_worker import GO_ON, QUIT, STOP, Switch, run_names, run_on_node
from agent.batch.tail import RunTail, status_of
from agent.config import without_usage_reports
from agent.errors import ConfigError, SandboxError, install

SANDBOX: Final = "sandbox"
NAMESPACE: Final = "cuda-agent"
POLL_S: Final = 1.0
CONTROL_TIMEOUT_S: Final = 10.0
TRIES: Final = 3
CONNECT_TIMEOUT_S: Final = 10.0
LEAVE_S: Final = 30.0
AUTO: Final = "auto"
LOCAL: Final = ""


@dataclass
class _Running:
    """A submitted job: its task's reference, and the reader of what its run records."""

    job: Job
    ref: Any
    tail: RunTail


@dataclass
class RayExecutor:
    """`address`: `auto` or `host:port` of a cluster; empty starts one on this machine with `workers` sandboxes.

    `workers` limits the jobs at once; 0: as many as the cluster offers sandboxes. `cuda`: whether leases are GPUs.
    """

    address: str = LOCAL
    workers: int = 0
    cuda: bool = False
    _running: dict[tuple[str, int], _Running] = field(default_factory=dict, init=False)
    _reports: deque[Report] = field(default_factory=deque, init=False)
    _known: dict[tuple[str, int], frozenset[str]] = field(default_factory=dict, init=False)
    """Sample of a lost worker -> its runs at that time: what is begun after that, the driver may not have seen."""
    _wish: str = field(default=GO_ON, init=False)
    _told: str = field(default=GO_ON, init=False)
    """The wish that the switch is known to hold."""
    _actor: Any = field(default=None, init=False)
    """The switch; an actor ends with its last handle."""
    _looked_at: float = field(default=0.0, init=False)
    _closed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Raises ConfigError (Ray is missing, no node offers sandboxes), SandboxError where no cluster answers."""
        self._ray = _connected(self.address, self.workers)
        self._switch = f"switch-{secrets.token_hex(8)}"
        try:
            self._check_nodes()
            self._task = self._ray.remote(max_retries=0, num_cpus=0, resources={SANDBOX: 1})(run_on_node)
            self._set_switch()
            for _ in range(TRIES):
                if self._actor is None:
                    time.sleep(POLL_S)
                    self._set_switch()
        except BaseException:
            self._ray.shutdown()
            raise

    @property
    def slots(self) -> int:
        """As many sandboxes as the nodes offer now, `workers` at most."""
        offered = int(self._ray.cluster_resources().get(SANDBOX, 0))
        return min(offered, self.workers) if self.workers else offered

    def submit(self, job: Job) -> None:
        known = self._known.pop(job.key, None)
        known = run_names(job.folder) if known is None else known
        # SPREAD: the packing default would fill one node with sandboxes while others idle.
        ref = self._task.options(scheduling_strategy="SPREAD", name=f"{job.task.name}#{job.sample}").remote(
            job, known=known, version=__version__, switch=self._switch
        )
        self._running[job.key] = _Running(job, ref, RunTail(job.folder, run=job.run, known=known))

    def next_report(self, *, timeout_s: float) -> Report | None:
        deadline = time.monotonic() + timeout_s
        while not self._reports and not self._closed:
            left = deadline - time.monotonic()
            self._gather(max(0.0, min(left, POLL_S)))
            if left <= 0:
                break
        return self._reports.popleft() if self._reports else None

    def stop(self, *, judge: bool) -> None:
        self._wish = STOP if judge else QUIT
        self._set_switch()

    def close(self) -> None:
        """What still runs is asked to leave and waited for a little, then ended. Reports stay to be taken."""
        if self._closed:
            return
        self._leave()
        self._closed = True
        if self._actor is not None:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.kill(self._actor)
        self._ray.shutdown()

    def _leave(self) -> None:
        if not self._running:
            return
        self.stop(judge=False)
        deadline = time.monotonic() + LEAVE_S
        while self._running and time.monotonic() < deadline:
            self._gather(POLL_S)
        for running in self._running.values():
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.cancel(running.ref, force=True)
            self._reports.append(Done(job=running.job, outcome="left", run=running.tail.run))
        self._running.clear()

    def _gather(self, timeout_s: float) -> None:
        """Whatever ended, and once a second what the running ones have recorded."""
        ended = self._ended(timeout_s)
        if ended or time.monotonic() - self._looked_at >= POLL_S:
            self._looked_at = time.monotonic()
            if self._wish != GO_ON:
                self._check_switch()
            for key, running in self._running.items():
                found = running.tail.read()
                self._reports.extend(
                    Moved(key, run, event, status_of(event, turn=running.tail.turn)) for run, event in found
                )
        for key in ended:
            running = self._running.pop(key)
            self._reports.append(self._done(running))

    def _ended(self, timeout_s: float) -> list[tuple[str, int]]:
        refs = {running.ref: key for key, running in self._running.items()}
        if not refs:
            time.sleep(timeout_s)
            return []
        ready, _ = self._ray.wait(list(refs), num_returns=1, timeout=timeout_s)
        if ready:
            ready, _ = self._ray.wait(list(refs), num_returns=len(refs), timeout=0)
        return [refs[ref] for ref in ready]

    def _done(self, running: _Running) -> Done:
        try:
            done: Done = self._ray.get(running.ref)
        except self._ray.exceptions.RayTaskError as error:
            return _failed(running.job, error)
        except self._ray.exceptions.RayError as error:
            self._known[running.job.key] = run_names(running.job.folder)
            detail = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            return Done(job=running.job, outcome="failed", run=running.tail.run, fault=Fault.WORKER, detail=detail)
        if done.fault in (Fault.WORKER, Fault.BUSY):  # whoever is still at work there may have begun another run
            self._known[running.job.key] = running.tail.known
        return replace(done, job=running.job)  # as it was submitted, whichever run the worker went on with

    def _set_switch(self) -> None:
        """The wish is told to the actor; where that is gone with its node, a new one takes its name.

        What could not be told is told again with every look at what runs, until the actor has heard it.
        """
        if self._actor is not None:
            try:
                self._told = self._ray.get(self._actor.write.remote(self._wish), timeout=CONTROL_TIMEOUT_S)
            except self._ray.exceptions.GetTimeoutError:
                return
            except self._ray.exceptions.RayError:
                self._actor = None  # its name stays taken as long as this process has a handle
            else:
                return
        with contextlib.suppress(self._ray.exceptions.RayError, ValueError):
            # On the driver's own node where it can be: what ends that node ends the command as well.
            here = self._ray.get_runtime_context().get_node_id()
            place = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=True)
            made = self._ray.remote(Switch).options(name=self._switch, num_cpus=0, scheduling_strategy=place)
            self._actor = made.remote(self._wish)
            try:
                self._told = self._ray.get(self._actor.read.remote(), timeout=CONTROL_TIMEOUT_S)
            except self._ray.exceptions.RayError:
                # One that is late at first has never come later: another takes its name once it is gone.
                self._ray.kill(self._actor)
                self._actor = None
                raise

    def _check_switch(self) -> None:
        """A wish that was not told, or that is gone with the actor."""
        if self._told == self._wish and self._actor is not None:
            try:
                ready, _ = self._ray.wait([self._actor.read.remote()], timeout=0.2)
                self._told = self._ray.get(ready[0]) if ready else self._told
            except self._ray.exceptions.RayError:
                self._told, self._actor = GO_ON, None
        if self._told != self._wish:
            self._set_switch()

    def _check_nodes(self) -> None:
        nodes = [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get(SANDBOX, 0) >= 1]
        if not nodes:
            hint = f"start nodes with: ray start … --resources '{{\"{SANDBOX}\": 8}}'"
            raise ConfigError("no node of the Ray cluster offers sandboxes", hint=hint)
        if self.cuda and not any(node["Resources"].get("GPU", 0) >= 1 for node in nodes):
            raise ConfigError("no node of the Ray cluster that offers sandboxes has a GPU", hint="--target cpu")


def _connected(address: str, workers: int) -> Any:
    """The module `ray`, connected. Raises ConfigError, SandboxError."""
    without_usage_reports()
    try:
        ray = ray_module()
    except ImportError:
        raise ConfigError("--executor ray needs Ray", hint=install("ray")) from None
    if "://" in address:
        raise ConfigError(
            f"--ray-address {address} is a client's address",
            hint="run the command on a node of the cluster, with --ray-address auto",
        )
    _check_address(address)
    quiet: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": "ERROR"}
    with _own_signal_handlers():
        try:
            if address:
                ray.init(address=address, **quiet)
            else:
                offered = {SANDBOX: workers or os.cpu_count() or 1}
                ray.init(address="local", include_dashboard=False, resources=offered, **quiet)
        except (OSError, RuntimeError, ValueError) as error:
            what = f"no Ray cluster answers at {address}" if address else "Ray could not be started"
            raise SandboxError(f"{what}: {' '.join(str(error).split())[:200]}", hint="ray status") from error
    return ray


def _check_address(address: str) -> None:
    """Ray itself waits for a missing cluster without end."""
    if address in (LOCAL, AUTO):
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"--ray-address {address} is no address", hint="auto, or HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise SandboxError(f"no Ray cluster answers at {address}: {error}", hint="ray status") from error


@contextlib.contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Ray takes SIGTERM for itself; the driver's own handlers stay."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _failed(job: Job, error: Any) -> Done:
    """The worker process could not even begin: the software is missing on its node, or it is a fault of ours."""
    cause = error.cause if isinstance(error.cause, Exception) else error
    if isinstance(cause, ImportError):
        detail = f"a node of the Ray cluster lacks what is needed: {detail_of(cause)}"
        return Done(job=job, outcome="left", run=job.run, fault=Fault.SETUP, detail=detail)
    return Done(job=job, outcome="failed", run=job.run, fault=Fault.INTERNAL, detail=detail_of(cause))

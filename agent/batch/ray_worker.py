"""What runs on a node of a Ray cluster: one job in a worker process, alone on its sample, heeding the driver's wishes.

Covers: a worker that Ray has given up but that still runs cannot write beside its successor, because each holds the
sample's lock; a run that it began after the driver had looked is gone on with, not made a second time. Not covered: a
shared file system whose flock does not reach other machines.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from agent import __version__
from agent.batch.executor import Done, Job, alone, in_use, run_job
from agent.batch.faults import Fault, detail_of, fault_of
from agent.batch.ray_device import job_device, ray_module
from agent.loop.control import Controls, SilentListener
from agent.trajectory.events import Event, ReplyEvent
from agent.trajectory.stored import find_runs, read_ending

LOCK_PATIENCE_S: Final = 120.0
POLL_S: Final = 1.0
GO_ON: Final = ""
STOP: Final = "stop"
QUIT: Final = "quit"


class Switch:
    """An actor that tells all workers what the driver wants: to go on, to stop and judge, or to quit."""

    def __init__(self, wish: str) -> None:
        self._wish = wish

    def read(self) -> str:
        return self._wish

    def write(self, wish: str) -> str:
        self._wish = wish
        return wish


def run_on_node(job: Job, *, known: frozenset[str], version: str, switch: str) -> Done:
    """Run one job here. `known`: the sample's runs when the driver last looked; `switch`: the name of the actor."""
    if version != __version__:
        detail = f"a node has cuda-agent {__version__}, the driver {version}"
        return Done(job=job, outcome="left", run=job.run, fault=Fault.SETUP, detail=detail)
    try:
        with alone(job.folder, patience_s=LOCK_PATIENCE_S) as free:
            return _run(job, known, switch) if free else in_use(job)
    except Exception as error:  # noqa: BLE001 - the edge of a process: what went wrong around run_job
        return Done(job=job, outcome="failed", run=job.run, fault=fault_of(error), detail=detail_of(error))


def run_names(folder: Path) -> frozenset[str]:
    """The runs that a sample has."""
    return frozenset(run.path.name for run in find_runs([folder])) if folder.is_dir() else frozenset()


def _run(job: Job, known: frozenset[str], switch: str) -> Done:
    others = [run for run in find_runs([job.folder]) if run.path != job.run]
    for run in others:
        ending = read_ending(run)
        if ending is not None and ending.settled:  # a sample has one verdict, whoever came to it
            return run_job(replace(job, run=run.path))  # ends at once, with what its log has counted
    begun = [run.path for run in others if run.path.name not in known]
    if begun:
        job = replace(job, run=max(begun, key=lambda path: path.stat().st_mtime))
    controls, watch = Controls(), Answers(answered=job.run is not None)
    with obeying(lambda: read_switch(switch), controls, watch):
        return run_job(job, listener=watch, controls=controls, device=job_device(job.config))


@dataclass
class Answers(SilentListener):
    """Whether the model has answered: before that there is nothing to be judged, and an ended run stays owed."""

    answered: bool

    def on_event(self, event: Event) -> None:
        self.answered |= isinstance(event, ReplyEvent)


@contextlib.contextmanager
def obeying(read: Callable[[], str], controls: Controls, answers: Answers) -> Iterator[None]:
    """Asks for the driver's wish while the job runs, and passes it on."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(POLL_S):
            wish = read()
            if wish == STOP and answers.answered:
                controls.request_stop()
            elif wish != GO_ON:
                controls.request_quit()

    thread = threading.Thread(target=watch, daemon=True, name="agent-switch")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def read_switch(name: str) -> str:
    """GO_ON also while nobody answers: the switch moves where its node is lost."""
    ray = ray_module()
    try:
        wish: str = ray.get(ray.get_actor(name).read.remote(), timeout=POLL_S * 5)
    except (ray.exceptions.RayError, ValueError):  # ValueError: there is no actor of this name now
        return GO_ON
    return wish

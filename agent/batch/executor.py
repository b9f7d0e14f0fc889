"""What an executor is: jobs in, reports out; and `run_job`, the one function that runs a job wherever that is.

A job is one attempt at one sample of one task. The driver submits at most `slots` jobs at a time and takes reports from
`next_report`; draining is not submitting any more. What a job came to is on disk before its Done is reported, so that a
lost report costs nothing: the driver reads the folder again.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, Protocol

from agent.backends.registry import make_backend
from agent.batch.faults import Fault, backend_fault, detail_of, fault_of, refused_by, stop_fault
from agent.batch.patience import PatientBackend
from agent.config import Config
from agent.errors import ConfigError, RecordError
from agent.judging.reports import Verdict
from agent.locks import locked
from agent.loop.control import Controls, Device, Listener, SilentListener, Status
from agent.loop.episode import EpisodeResult, resume_episode, run_episode
from agent.loop.judgement import Judgement, Subject, verdict_record
from agent.loop.opening import Seed
from agent.tasks.task import Task
from agent.trajectory.events import Event, StopReason
from agent.trajectory.folder import RunFolder
from agent.trajectory.stored import read_ending
from agent.trajectory.writer import record_error

Outcome = Literal["settled", "failed", "left", "refused"]
WORKER_LOCK: Final = ".worker"
_LEAVING: Final = (Fault.SETUP, Fault.BUSY)


@dataclass(frozen=True)
class Job:
    """One attempt, complete in itself: it can be pickled and run on another machine that sees the same folder.

    `folder` is the sample's (`tasks/<task>/<k>`); `config` already names this sample's script where there is one. `run`
    is the run to go on with, None for a new one. `patient`: an outage leaves the run instead of ending it.
    """

    task: Task
    sample: int
    attempt: int
    folder: Path
    config: Config
    run: Path | None = None
    seed: Seed | None = None
    patient: bool = True

    @property
    def key(self) -> tuple[str, int]:
        return self.task.name, self.sample


@dataclass(frozen=True)
class Done:
    """What a job came to. `run` is None where nothing was recorded.

    settled: a verdict that stays is on disk. failed: `fault` says what, by the error table. left: to be gone on with
    (asked to quit, or `fault` is outage, setup or busy). refused: the task is none. Counts are the whole run's.
    `old`: the fault was recorded by an earlier command.
    """

    job: Job
    outcome: Outcome
    run: Path | None = None
    fault: Fault | None = None
    detail: str = ""
    reason: StopReason | None = None
    reward: int | None = None
    turns: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = 0.0
    seconds: float = 0.0
    device_wait_s: float = 0.0
    device_s: float = 0.0
    old: bool = False

    @property
    def halts(self) -> bool:
        """Whether every other episode would meet the same fault now."""
        return self.fault is not None and self.fault.halts and not self.old


@dataclass(frozen=True)
class Moved:
    """A running job did something: an event was recorded, or its phase changed. Executors may leave these out."""

    key: tuple[str, int]
    run: Path | None = None
    event: Event | None = None
    status: Status | None = None


Report = Done | Moved


class MeteredDevice(Device, Protocol):
    """A device of one job that counts how long it was waited for and held."""

    waited_s: float
    held_s: float


class Executor(Protocol):
    """Runs jobs at once, each exactly once; a job whose worker is lost is reported as Done with Fault.WORKER."""

    @property
    def slots(self) -> int:
        """How many jobs run side by side at most; may change while it runs."""
        ...

    def submit(self, job: Job) -> None:
        """Start one job. The driver never has more than `slots` submitted."""
        ...

    def next_report(self, *, timeout_s: float) -> Report | None:
        """The next report, None when none came in time. Called from one thread."""
        ...

    def stop(self, *, judge: bool) -> None:
        """End what runs: with a judgement of what there is, or (judge false) left to be resumed. Callable twice."""
        ...

    def close(self) -> None:
        """Free everything; what still runs is left."""
        ...


@contextlib.contextmanager
def alone(folder: Path, *, patience_s: float = 0.0) -> Iterator[bool]:
    """Holds the sample's lock; false where another worker, of whatever executor, has it after `patience_s`.

    Raises RecordError.
    """
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held = stack.enter_context(locked(folder / WORKER_LOCK, patience_s=patience_s))
        except OSError as error:
            raise record_error(folder / WORKER_LOCK, error) from error
        yield held is not None


def in_use(job: Job) -> Done:
    detail = f"{job.folder} is still in use by another worker"
    return Done(job=job, outcome="left", run=job.run, fault=Fault.BUSY, detail=detail)


def run_job(
    job: Job,
    *,
    listener: Listener | None = None,
    controls: Controls | None = None,
    device: MeteredDevice | None = None,
) -> Done:
    """Run or go on with one episode and say how it ended. Never raises: what went wrong is a typed fault."""
    began, runs = time.monotonic(), [job.run] if job.run else []
    try:
        done = _attempt(job, runs, listener or SilentListener(), controls or Controls(), device)
    except Exception as error:  # noqa: BLE001 - the edge where a fault becomes a recorded class
        done = _raised(job, runs, error)
    return replace(
        done,
        seconds=done.seconds or time.monotonic() - began,
        device_wait_s=device.waited_s if device else 0.0,
        device_s=device.held_s if device else 0.0,
    )


def _attempt(job: Job, runs: list[Path], listener: Listener, controls: Controls, device: MeteredDevice | None) -> Done:
    inner = make_backend(job.config.backend, task_sha256=job.task.sha256, cancelled=lambda: controls.leaving)
    patient = PatientBackend(inner, controls) if job.patient else None
    backend = patient or inner
    try:
        folder = _stored(job.run) if job.run else RunFolder.create(job.folder, job.task, job.config)
        runs[:] = [folder.path]
        if job.run:
            result = resume_episode(
                folder, backend=backend, listener=listener, controls=controls, device=device, seed=job.seed
            )
        else:
            result = run_episode(
                job.config,
                job.task,
                folder,
                backend=backend,
                listener=listener,
                controls=controls,
                device=device,
                seed=job.seed,
            )
    finally:
        backend.close()
    trouble = patient.trouble if patient else None
    if not result.finished:
        fault = backend_fault(trouble) if trouble else None
        return _done(job, result, "left", fault, detail_of(trouble) if trouble else "")
    return _finished(job, folder, result)


def _stored(path: Path) -> RunFolder:
    """A run that cannot be opened is damaged, not the user's mistake."""
    try:
        folder = RunFolder.open(path)
        folder.config()
        folder.task()
    except ConfigError as error:
        raise RecordError(str(error)) from error
    return folder


def _finished(job: Job, folder: RunFolder, result: EpisodeResult) -> Done:
    ending = read_ending(folder)
    if refusal := refused_by(ending):
        return _done(job, result, "refused", Fault.TASK, refusal)
    if result.judge_errors:
        fault = Fault.DISK_FULL if result.judge_lacked_disk else Fault.JUDGE
        return _done(job, result, "failed", fault, "; ".join(result.judge_errors))
    if result.reward is None and result.reason.infrastructure:
        return _done(job, result, "failed", stop_fault(result.reason), result.detail)
    if ending is None:  # a disk that was full then: the log has all that the file says
        record = verdict_record(result.reason, result.reward, Judgement(_verdicts(result)))
        folder.write_json("verdict.json", record)
    elif not ending.settled:
        return _done(job, result, "failed", Fault.JUDGE, "the judge stumbled twice")
    return _done(job, result, "settled", None, "")


def _verdicts(result: EpisodeResult) -> dict[Subject, Verdict]:
    found: dict[Subject, Verdict | None] = {"best": result.best, "final": result.final}
    return {subject: verdict for subject, verdict in found.items() if verdict is not None}


def _done(job: Job, result: EpisodeResult, outcome: Outcome, fault: Fault | None, detail: str) -> Done:
    return Done(
        job=job,
        outcome=outcome,
        run=result.run_dir,
        fault=fault,
        detail=" ".join(detail.split())[:500],
        reason=result.reason,
        reward=result.reward,
        turns=result.turns,
        prompt_tokens=result.prompt_tokens,
        completion_tokens=result.completion_tokens,
        cost_usd=result.cost_usd,
        seconds=result.wall_s,
        old=result.old_stop and not result.judge_errors,  # judged now, whenever it stopped
    )


def _raised(job: Job, runs: list[Path], error: Exception) -> Done:
    """A run that never began was removed by the loop; then there is none to report."""
    fault = fault_of(error)
    if fault is Fault.OUTAGE and not job.patient:  # others are answered: it is this conversation
        fault = Fault.BACKEND
    outcome: Outcome = "refused" if fault is Fault.TASK else "left" if fault in _LEAVING else "failed"
    run = next((path for path in runs if path.is_dir()), None)
    return Done(job=job, outcome=outcome, run=run, fault=fault, detail=detail_of(error))

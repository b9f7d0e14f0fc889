"""The error table of a collection: what kept an attempt from a verdict, and what is done about it.

Infrastructure is retried and never scored. What the model itself does wrong (limits, format errors, being stuck, a
wrong kernel) is no error here: such an episode has a verdict and is kept as data.

class           what                                             then
task            inspection or the judge's controls refuse it     refused once, all its samples with it
unclear         time or memory ran out while it was looked at    a new attempt: the machine may have been busy
setup           settings, key, model name, missing software      no further episode starts; running ones are left
outage          nobody answers, 5xx, 429, timeouts               the run is left; new work waits until somebody answers
disk_full       nothing can be recorded                          no further episode starts
backend         the server refuses this conversation             a new attempt
sandbox         it could not be opened, or was lost              a new attempt
judge           the judge itself could not run, or stumbled      judged again; else a new attempt
record          a run's files are damaged                        a new attempt beside it
busy            another process is at work on the run            the run is left, and tried again when that has ended
internal        a fault of this program                          a new attempt
worker          the process or node of an episode went away      the run is gone on with elsewhere
"""

from enum import StrEnum
from typing import Final

from agent.errors import (
    AgentError,
    BackendError,
    ConfigError,
    InUse,
    JudgeError,
    RecordError,
    SandboxError,
    TaskError,
    UnclearTask,
)
from agent.judging.cache import DOUBTFUL
from agent.trajectory.events import StopReason
from agent.trajectory.stored import Ending
from agent.trajectory.writer import means_full_disk

MOST_ATTEMPTS: Final = 3
# A node may go away without a fault of the episode; one that takes its worker down again and again is at fault.
MOST_LOST_WORKERS: Final = 5
_SETUP_KINDS: Final = frozenset({"no_key", "auth", "model_not_found"})
_OUTAGE_KINDS: Final = frozenset({"unreachable", "timeout", "rate_limit", "server"})


class Fault(StrEnum):
    """Why an attempt gave no verdict."""

    TASK = "task"
    UNCLEAR = "unclear"
    SETUP = "setup"
    OUTAGE = "outage"
    DISK_FULL = "disk_full"
    BACKEND = "backend"
    SANDBOX = "sandbox"
    JUDGE = "judge"
    RECORD = "record"
    BUSY = "busy"
    INTERNAL = "internal"
    WORKER = "worker"

    @property
    def burns(self) -> bool:
        """Whether it uses up one of a sample's attempts."""
        return self in _BURNING

    @property
    def halts(self) -> bool:
        """Whether every other episode would meet the same: no further one is started."""
        return self in (Fault.SETUP, Fault.DISK_FULL)


_BURNING: Final = frozenset({Fault.UNCLEAR, Fault.BACKEND, Fault.SANDBOX, Fault.JUDGE, Fault.RECORD, Fault.INTERNAL})


def fault_of(error: BaseException) -> Fault:
    """The class of an exception that ended an attempt."""
    match error:
        case UnclearTask():
            return Fault.UNCLEAR
        case TaskError():
            return Fault.TASK
        case ConfigError():
            return Fault.SETUP
        case BackendError():
            return backend_fault(error)
        case InUse():
            return Fault.BUSY
        case RecordError() | SandboxError() | JudgeError() | OSError() if means_full_disk(error):
            return Fault.DISK_FULL
        case RecordError():
            return Fault.RECORD
        case SandboxError():
            return Fault.SANDBOX
        case JudgeError():
            return Fault.JUDGE
        case _:
            return Fault.INTERNAL


def backend_fault(error: BackendError) -> Fault:
    """Whether all episodes would meet the same error (setup, outage) or only this conversation does."""
    if error.kind in _SETUP_KINDS:
        return Fault.SETUP
    return Fault.OUTAGE if error.kind in _OUTAGE_KINDS else Fault.BACKEND


def stop_fault(reason: StopReason) -> Fault:
    """The class of a recorded stop that is infrastructure's."""
    return {
        StopReason.BACKEND: Fault.BACKEND,
        StopReason.SANDBOX: Fault.SANDBOX,
        StopReason.DISK_FULL: Fault.DISK_FULL,
    }.get(reason, Fault.INTERNAL)


def detail_of(error: BaseException) -> str:
    """One line about it."""
    text = str(error) if isinstance(error, AgentError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:500]


def refused_by(ending: Ending | None) -> str:
    """Why the judge's controls refuse the task; empty where they do not, or where a busy machine may be why."""
    verdict = ending.verdict if ending else None
    if verdict is None or verdict.get("verdict") != "error":
        return ""
    reasons = verdict.get("reasons") or []
    codes = [str(reason.get("code", "")) for reason in reasons]
    if not codes or DOUBTFUL.intersection(codes) or not all(code.startswith("task.") for code in codes):
        return ""
    return "; ".join(f"{reason.get('detail')} [{reason.get('code')}]" for reason in reasons)

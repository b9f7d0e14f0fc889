"""How a judgement can end early: the submission is rejected, or nothing can be said about it. Every way has a reason
code.
"""

from typing import Final

from referee import faults
from referee.launch import WorkerFailure


class Rejected(Exception):
    """The submission's fault; `detail` says what to change."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class Unjudgeable(Exception):
    """The task's or the machine's fault: a verdict `error`, never a reward."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


# What a submission's worker does wrong, by kind of failure.
RUNTIME: Final = {
    "crash": ("runtime.crash", "the process crashed: {}"),
    "exit": ("runtime.exit", "the process ended itself before it had answered: {}"),
    "killed": ("runtime.oom", "the process was killed, probably for its memory: {}"),
    "oom": ("runtime.oom", "out of memory: {}"),
    "timeout": ("runtime.timeout", "{}"),
    "garbage": ("tamper.protocol", "the worker's answer is not one of the protocol: {}"),
    "syscall": ("tamper.syscall", "{}"),
    "awake": ("tamper.process", "{}"),
    "company": ("tamper.process", "{}"),
    "exception": ("runtime.exception", "forward raised {}"),
    "numeric.precision_flag": ("numeric.precision_flag", "{}"),
}

LOADING: Final = (
    "load.no_model_new", "load.syntax", "load.import", "load.no_class", "load.constructor",
    "load.state_dict", "load.too_large",
)  # fmt: skip


def blame(failure: WorkerFailure, *, trusted: bool) -> Rejected | Unjudgeable:
    """Whose fault a worker's failure is."""
    if not trusted:
        if failure.kind in LOADING:
            return Rejected(failure.kind, failure.detail)
        code, text = RUNTIME.get(failure.kind, ("runtime.exception", "{}"))
        return Rejected(code, text.format(failure.detail))
    if failure.kind in ("exception", "task.raises") and faults.of_machine(failure.detail):
        return Unjudgeable("runtime.no_device", f"{failure.worker}: {failure.detail}")
    if failure.kind.startswith("task."):
        return Unjudgeable(failure.kind, failure.detail)
    kind = {
        "oom": "task.out_of_memory",
        "killed": "task.out_of_memory",
        "exception": "task.raises",
        "timeout": "task.hangs",
    }.get(failure.kind, f"runtime.referee_{failure.kind}")
    return Unjudgeable(kind, f"{failure.worker}: {failure.detail}")

"""The error model.

AgentError                      one clear line for a person, what to do about it, an exit code
├── ConfigError        exit 2   the user's: flags, agent.toml, environment
├── TaskError          exit 2   the user's: model.py missing, not parsable, raises, hangs, returns no tensors
├── BackendError       exit 3   infrastructure: the language model's side (no key, 401, unreachable, no JSON)
├── SandboxError       exit 3   infrastructure: no engine, image missing, container gone, disk full
├── RecordError        exit 3   infrastructure: the run folder cannot be written (disk full) or read (damaged, in use)
└── JudgeError         exit 3   infrastructure: the judge itself could not run (never a verdict about a kernel)

A user error is reported and nothing is recorded as an episode's result. Infrastructure errors may be retried and are
never scored as a bad kernel. What the *model* does wrong (malformed calls, failing commands, wrong kernels) is data:
an ExecResult, a report, an observation, never an exception.
"""

from typing import Final, Literal

EXIT_FASTER: Final = 0
EXIT_NOT_FASTER: Final = 1
EXIT_USAGE: Final = 2
EXIT_INFRASTRUCTURE: Final = 3
BackendErrorKind = Literal[
    "no_key",
    "auth",
    "model_not_found",
    "unreachable",
    "timeout",
    "rate_limit",
    "server",
    "bad_request",
    "protocol",
]


class AgentError(Exception):
    """Something a person must know: `message` is one line, `hint` says what to do."""

    exit_code = EXIT_INFRASTRUCTURE

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class ConfigError(AgentError):
    """Flags, agent.toml or environment variables make no sense."""

    exit_code = EXIT_USAGE


class TaskError(AgentError):
    """The user's model.py cannot be a task."""

    exit_code = EXIT_USAGE


class UnclearTask(TaskError):
    """Time or memory ran out while the task was looked at: it may be at fault, or a machine that was busy."""


class BackendError(AgentError):
    """The language model could not be asked; `kind` is recorded with the run."""

    def __init__(self, message: str, *, kind: BackendErrorKind, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


class ContextOverflow(BackendError):
    """The conversation no longer fits the model's window: the end of a budget, not a failure of the backend."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="bad_request")


class SandboxError(AgentError):
    """The sandbox is not there, not allowed or gone; `post_mortem` says what is known (exit code, log tail)."""

    def __init__(self, message: str, *, hint: str = "", oom: bool = False, post_mortem: str = "") -> None:
        super().__init__(message, hint=hint)
        self.oom = oom
        self.post_mortem = post_mortem


class RecordError(AgentError):
    """A run folder cannot be written or read; `full` where the disk is."""

    def __init__(self, message: str, *, hint: str = "", full: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.full = full


class InUse(RecordError):
    """Another process is at work there."""


class JudgeError(AgentError):
    """The judge produced no report (killed, timed out, unparsable): nothing is known about the submission."""


def install(extra: str) -> str:
    """What to do where a package of an extra is missing."""
    return f"pip install 'cuda-agent[{extra}]', in a clone: pip install -e '.[{extra}]'"

"""What an action works with, and what comes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from agent.config import LimitsConfig
from agent.judging.tool_runs import Rules
from agent.loop.standby import Reserve
from agent.sandbox.base import Sandbox
from agent.sandbox.variables import WithVariables
from agent.tasks.task import Task

LOGS: Final = "/opt/agent-logs"
"""Where the run's logs/ is seen inside the sandbox, read-only, so that the model can search a long output."""

ObservationStatus = Literal["ok", "failed", "timeout", "oom", "invalid", "denied", "not_executed"]


@dataclass(frozen=True)
class Workbench:
    """The running sandbox and the task's side conditions. `logs` is the run's folder on the host."""

    sandbox: Sandbox
    task: Task
    rules: Rules
    limits: LimitsConfig
    logs: Path
    reserve: Reserve | None = None
    """Builds that are shared with tools which stand by; None where there is but the sandbox."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Which device is held for what runs now."""

    def told(self, variables: Mapping[str, str]) -> "Workbench":
        """The same, with these environment variables for every command."""
        if not variables:
            return self
        return replace(self, sandbox=WithVariables(self.sandbox, variables), variables=variables)

    def abandon(self) -> None:
        """End whatever runs; from any thread."""
        if self.reserve is not None:
            self.reserve.abandon()
        self.sandbox.close()


@dataclass(frozen=True)
class Outcome:
    """One action's result; becomes an ObservationEvent. `text` is what the model sees, `log` is relative to the run."""

    text: str
    status: ObservationStatus
    exit_code: int | None = None
    duration_s: float = 0.0
    device_wait_s: float = 0.0
    report: dict[str, Any] | None = None
    log: str | None = None
    diff: str | None = None

"""The Sandbox protocol: what every sandbox does for the loop and for the judge, and what a command's result is.

Covered by every sandbox: no network, the workspace as the only writable place that outlives a command (with a private
/tmp), read-only tools. Not covered here: what each kind adds or lacks is said at the top of docker.py, bubblewrap.py
and unconfined.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol

WORKSPACE: Final = "/workspace"
TOOLS: Final = "/opt/agent-tools"
SKILL: Final = "/opt/agent-skill"
CACHE: Final = "/opt/agent-cache"

ExecStatus = Literal["exited", "timeout", "oom"]
Heard = Callable[[bytes], None]


@dataclass(frozen=True)
class Output:
    """What a stream carried: the first and last bytes; `omitted` bytes between them were dropped from memory."""

    head: bytes
    tail: bytes
    omitted: int

    @property
    def total(self) -> int:
        return len(self.head) + self.omitted + len(self.tail)

    def text(self) -> str:
        """Decoded (never raises); names the number of omitted bytes where some are missing."""
        if not self.omitted:
            return (self.head + self.tail).decode("utf-8", "replace")
        gap = f"\n[... {self.omitted} bytes omitted ...]\n"
        return self.head.decode("utf-8", "replace") + gap + self.tail.decode("utf-8", "replace")


@dataclass(frozen=True)
class ExecResult:
    """A finished command. A failing command is an ExecResult too; SandboxError means that the sandbox itself is gone.

    `exit_code` is what the command ended with (128+n for signal n; 124 when status is "timeout").
    `log` is the host file that holds the complete output where one was asked for (stdout and stderr as they came).
    """

    status: ExecStatus
    exit_code: int
    stdout: Output
    stderr: Output
    duration_s: float
    log: Path | None = None

    @property
    def ok(self) -> bool:
        return self.status == "exited" and self.exit_code == 0


@dataclass(frozen=True)
class Mount:
    """A host folder or file seen inside the sandbox."""

    source: Path
    target: str
    read_only: bool = True


@dataclass(frozen=True)
class Limits:
    """Resource limits of one sandbox. `cpus` and `tmp_bytes` hold where the kind can enforce them."""

    memory_bytes: int = 8 << 30
    pids: int = 512
    cpus: float | None = None
    shm_bytes: int = 2 << 30
    tmp_bytes: int = 8 << 30
    log_bytes: int = 256 << 20
    """Largest complete log of one command on the host's disk."""


@dataclass(frozen=True)
class SandboxSpec:
    """What a sandbox is started with. `workspace` (host folder) appears at /workspace."""

    workspace: Path
    workspace_read_only: bool = False
    mounts: tuple[Mount, ...] = ()
    system: tuple[Mount, ...] = ()
    """What programs need of this machine (compilers, a driver): read-only, mounted before the rest."""
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    labels: Mapping[str, str] = field(default_factory=dict)
    gpus: str = "none"  # "none" or "all"


class Sandbox(Protocol):
    """One command at a time. `close` is idempotent, never raises, and may be called from another thread: it then ends
    the command that is running, and that call raises SandboxError."""

    @property
    def kind(self) -> str:
        """docker, bubblewrap or none."""
        ...

    @property
    def python(self) -> str:
        """Path, inside the sandbox, of the interpreter that has torch."""
        ...

    def exec(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        cwd: str | None = None,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        heard: Heard | None = None,
    ) -> ExecResult:
        """Run argv (no shell added) with cwd /workspace by default. Ends the whole process group in every case.

        `heard` is given what comes on stdout as it comes.
        Raises SandboxError when the sandbox is gone. A background child that holds stdout does not delay the return.
        """
        ...

    def read(self, path: str, *, limit: int) -> bytes:
        """The first `limit` bytes of a regular file; relative paths are below /workspace.

        Raises FileNotFoundError, IsADirectoryError, PermissionError (also for anything that leads out of the sandbox).
        """
        ...

    def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Replace a file atomically, making parent folders. Same errors as read; OSError if the disk is full."""
        ...

    def describe(self) -> str:
        """One line for a person: kind, where it runs, user, limits in force, and what is missing here."""
        ...

    def close(self) -> None: ...

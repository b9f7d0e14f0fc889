"""What the sandboxes that start processes on this host share: scratch folder, control group, limits, one command."""

import shlex
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.errors import SandboxError
from agent.sandbox.base import WORKSPACE, ExecResult, Heard, Mount, Output, SandboxSpec
from agent.sandbox.beneath import HostFiles, Root
from agent.sandbox.capture import CommandOutput
from agent.sandbox.cgroup import Cgroup, create_cgroup
from agent.sandbox.interpreter import Interpreter
from agent.sandbox.process import (
    NOT_STARTED,
    TIMED_OUT,
    Finished,
    Running,
    status_of,
    unusable,
)
from agent.sandbox.scratch import make_scratch, remove_scratch

OPEN_FILES: Final = 4096
PROBE_S: Final = 10.0


class LocalSandbox(ABC):
    """Runs each command as a child of this process; a subclass says how it is confined."""

    def __init__(self, spec: SandboxSpec, interpreter: Interpreter) -> None:
        self._spec = spec
        self._interpreter = interpreter
        self._closed = False
        self._running = Running()
        self._scratch = make_scratch(spec.labels)
        self._cgroup = create_cgroup(spec.limits)
        self._remove = weakref.finalize(self, _remove, self._scratch, self._cgroup)
        self._tmp = Mount(self._scratch / "tmp", "/tmp", read_only=False)
        self._mounts = (Mount(spec.workspace, WORKSPACE, spec.workspace_read_only), self._tmp, *spec.mounts)
        self._files = HostFiles(tuple(Root(m.target, m.source, m.read_only) for m in self._mounts), WORKSPACE)
        try:
            self._prepare()
            self._probe()
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise SandboxError(f"cannot prepare a sandbox: {error}", hint="free disk space") from error
            raise

    @property
    def python(self) -> str:
        return str(self._interpreter.path)

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
        self._require_open()
        if problem := unusable(argv):
            return ExecResult("exited", NOT_STARTED, Output(b"", b"", 0), Output(problem.encode(), b"", 0), 0.0)
        before = self._cgroup.oom_kills()
        try:
            with CommandOutput(log, log_bytes=self._spec.limits.log_bytes, heard=heard) as output:
                done = self._run(argv, timeout_s=timeout_s, cwd=cwd, stdin=stdin, env=env or {}, output=output)
                oom = self._cgroup.oom_kills() > before
        except SandboxError as error:
            if not self._closed:
                raise
            raise SandboxError("the sandbox was closed during a command") from error
        if self._closed:
            raise SandboxError("the sandbox was closed during a command")
        status = status_of(
            done.exit_code, duration_s=done.duration_s, timeout_s=timeout_s, overdue=done.overdue, oom=oom
        )
        return ExecResult(
            status=status,
            exit_code=TIMED_OUT if status == "timeout" else done.exit_code,
            stdout=output.stdout.output(),
            stderr=output.stderr.output(),
            duration_s=done.duration_s,
            log=log,
        )

    def read(self, path: str, *, limit: int) -> bytes:
        self._require_open()
        return self._files.read(path, limit=limit)

    def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        self._require_open()
        self._files.write(path, data, mode=mode)

    def close(self) -> None:
        self._closed = True
        self._running.kill()
        self._remove()

    @abstractmethod
    def _prepare(self) -> None:
        """Once, before the first command: what stays the same for all of them."""

    @abstractmethod
    def _run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        cwd: str | None,
        stdin: bytes | None,
        env: Mapping[str, str],
        output: CommandOutput,
    ) -> Finished: ...

    def _probe(self) -> None:
        result = self.exec(["true"], timeout_s=PROBE_S)
        if not result.ok:
            raise SandboxError(f"a sandbox of this kind does not work here: {result.stderr.text().strip()[:300]}")

    def _require_open(self) -> None:
        if self._closed:
            raise SandboxError("the sandbox is closed")
        if not self._tmp.source.is_dir() or not self._spec.workspace.is_dir():
            raise SandboxError("the sandbox's folders were removed", hint="start a new sandbox")


def enter_script(cgroup: Cgroup, *, file_bytes: int) -> list[str]:
    """A shell that enters the control group, sets limits per process and becomes the arguments that follow."""
    enter = [f"echo 0 > {shlex.quote(str(entry))} || exit 1" for entry in cgroup.entries]
    # The address space is left alone: torch reserves far more than it uses.
    limits = ["ulimit -c 0", f"ulimit -f {file_bytes // 512}", f"ulimit -n {OPEN_FILES} 2>/dev/null"]
    return ["/bin/sh", "-c", "\n".join([*enter, *limits, 'exec "$@"']), "sh"]


def _remove(scratch: Path, cgroup: Cgroup) -> None:
    cgroup.remove()
    remove_scratch(scratch)

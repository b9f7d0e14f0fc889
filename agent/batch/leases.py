"""Exclusive leases of what is timed: a GPU, or all cores of the machine, for every process of this user.

Covers: two measurements never run on one device at the same time, in whatever collections or processes; a killed holder
frees its lease at once; a GPU that stops answering is passed over. Not covered: programs that know nothing of these
leases. A sandbox sees all GPUs and measures on the first one, so that a machine has one lease however many it has.
"""

import contextlib
import fcntl
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.config import cache_home
from agent.errors import ConfigError, SandboxError
from agent.loop.waiting import Interrupted

POLL_S: Final = 0.1
ASK_TIMEOUT_S: Final = 30.0
SET_ASIDE_S: Final = 60.0
CPU: Final = "cpu"


class DevicePool:
    """The devices of this machine, shared by the jobs of this process and, by file locks, with other processes."""

    def __init__(self, names: Sequence[str], *, folder: Path | None = None) -> None:
        """Raises ConfigError where the folder of the lock files cannot be made."""
        self.names = tuple(names)
        self.folder = folder or cache_home() / "leases"
        self._gate = threading.Semaphore(len(self.names))
        self._aside: dict[str, float] = {}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(f"cannot write in {self.folder}: {reason}", hint="set CUDA_AGENT_CACHE") from error

    @classmethod
    def of_machine(cls, target: str) -> "DevicePool":
        """For target cpu one lease of all cores, for cuda one of the first GPU. Raises SandboxError without one."""
        return cls((CPU,) if target == CPU else gpu_uuids()[:1])

    def for_job(self) -> "JobDevice":
        return JobDevice(self)

    @contextlib.contextmanager
    def hold(self, leave: Callable[[], bool]) -> Iterator[str]:
        """The name of a free, healthy device, held until the end. Raises Interrupted, SandboxError."""
        self._enter(leave)
        try:
            name, fd = self._acquire(leave)
            try:
                yield name
            finally:
                os.close(fd)
        finally:
            self._gate.release()

    def _enter(self, leave: Callable[[], bool]) -> None:
        """Only as many jobs of this process as there are devices ask for their locks."""
        while not self._gate.acquire(timeout=2 * POLL_S):
            if leave():
                raise Interrupted

    def _acquire(self, leave: Callable[[], bool]) -> tuple[str, int]:
        while True:
            if leave():
                raise Interrupted
            for name in random.sample(self.names, len(self.names)):
                if self._aside.get(name, 0.0) > time.monotonic():
                    continue
                fd = _try_lock(self.folder / f"{name}.lock")
                if fd is None:
                    continue
                if is_healthy(name):
                    return name, fd
                os.close(fd)
                self._aside[name] = time.monotonic() + SET_ASIDE_S
            if all(self._aside.get(name, 0.0) > time.monotonic() for name in self.names):
                raise SandboxError(f"no device answers: {', '.join(self.names)}", hint="look at nvidia-smi")
            time.sleep(random.uniform(POLL_S / 2, POLL_S))


@dataclass
class JobDevice:
    """One job's view of the pool: counts how long it waited for a device and held one."""

    pool: DevicePool
    waited_s: float = 0.0
    held_s: float = 0.0
    name: str = field(default="", init=False)
    """The device that is held now."""

    @contextlib.contextmanager
    def lease(self, *, leave: Callable[[], bool]) -> Iterator[None]:
        began = time.monotonic()
        with contextlib.ExitStack() as stack:
            try:
                self.name = stack.enter_context(self.pool.hold(leave))
            finally:
                self.waited_s += time.monotonic() - began
            began = time.monotonic()
            try:
                yield
            finally:
                self.held_s += time.monotonic() - began
                self.name = ""


def gpu_uuids() -> tuple[str, ...]:
    """The GPUs that the driver lists. Raises SandboxError where there is none."""
    listed = _ask_gpu("--query-gpu=uuid")
    if not listed:
        raise SandboxError("nvidia-smi lists no GPU", hint="install the NVIDIA driver, or use --target cpu")
    return tuple(listed)


def is_healthy(name: str) -> bool:
    """Whether the device answers; the cores of a machine always do."""
    return name == CPU or _ask_gpu("-i", name, "--query-gpu=uuid") == [name]


def _ask_gpu(*arguments: str) -> list[str]:
    command = ("nvidia-smi", *arguments, "--format=csv,noheader")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def _try_lock(path: Path) -> int | None:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise SandboxError(f"cannot open {path}: {error.strerror}", hint="set CUDA_AGENT_CACHE") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd

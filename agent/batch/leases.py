"""Exclusive leases of what is timed: a GPU, or all cores of the machine, for every process of this user.

Covers: two measurements never run on one device at the same time, in whatever collections or processes; whoever holds a
GPU is told its UUID for CUDA_VISIBLE_DEVICES, so that several GPUs measure side by side; a killed holder frees its
lease at once; a GPU that stops answering is passed over. Not covered: programs that know nothing of these leases, a
command of a model that sets the variable itself among them; whether two GPUs of one host disturb each other.
"""

import contextlib
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from agent.config import Config, cache_home, environ
from agent.errors import ConfigError, SandboxError
from agent.judging.target import resolve_target
from agent.locks import locked
from agent.loop.waiting import Interrupted

POLL_S: Final = 0.1
ASK_TIMEOUT_S: Final = 30.0
SET_ASIDE_S: Final = 60.0
CPU: Final = "cpu"
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
T = TypeVar("T")


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
        """For target cpu one lease of all cores, for cuda one of each GPU that this process may see.

        Raises SandboxError where there is none.
        """
        return cls((CPU,) if target == CPU else gpu_uuids(visible=environ().get(VISIBLE)))

    def for_job(self) -> "JobDevice":
        return JobDevice(self)

    @contextlib.contextmanager
    def hold(self, leave: Callable[[], bool]) -> Iterator[str]:
        """The name of a free, healthy device, held until the end. Raises Interrupted, SandboxError."""
        self._enter(leave)
        with contextlib.ExitStack() as stack:
            stack.callback(self._gate.release)
            yield self._acquire(leave, stack)

    def _enter(self, leave: Callable[[], bool]) -> None:
        """Only as many jobs of this process as there are devices ask for their locks."""
        while not self._gate.acquire(timeout=2 * POLL_S):
            if leave():
                raise Interrupted

    def _acquire(self, leave: Callable[[], bool], held: contextlib.ExitStack) -> str:
        while True:
            if leave():
                raise Interrupted
            for name in random.sample(self.names, len(self.names)):
                if self._aside.get(name, 0.0) > time.monotonic():
                    continue
                with contextlib.ExitStack() as stack:
                    if not stack.enter_context(_lease(self.folder / f"{name}.lock")):
                        continue
                    if is_healthy(name):
                        held.push(stack.pop_all())
                        return name
                self._aside[name] = time.monotonic() + SET_ASIDE_S
            if all(self._aside.get(name, 0.0) > time.monotonic() for name in self.names):
                raise SandboxError(f"no device answers: {', '.join(self.names)}", hint="look at nvidia-smi")
            time.sleep(random.uniform(POLL_S / 2, POLL_S))


@dataclass(kw_only=True)
class Metered:
    """Counts how long one job waited for its leases and held them."""

    waited_s: float = 0.0
    held_s: float = 0.0

    @contextlib.contextmanager
    def metered(self, lease: AbstractContextManager[T]) -> Iterator[T]:
        began = time.monotonic()
        with contextlib.ExitStack() as stack:
            try:
                value = stack.enter_context(lease)
            finally:
                self.waited_s += time.monotonic() - began
            began = time.monotonic()
            try:
                yield value
            finally:
                self.held_s += time.monotonic() - began


@dataclass
class JobDevice(Metered):
    """One job's view of the pool."""

    pool: DevicePool
    name: str = field(default="", init=False)
    """The device that is held now."""

    def lease(self, *, leave: Callable[[], bool]) -> AbstractContextManager[Mapping[str, str]]:
        """Gives the variables of the commands that use the device."""
        return self.metered(self._hold(leave))

    def spare(self) -> "Callable[[Callable[[], bool]], AbstractContextManager[Mapping[str, str]]] | None":
        """Another hold on the device for what is prepared ahead of a lease; None where the next lease may be of another
        one.
        """
        if len(self.pool.names) != 1:
            return None
        beside = JobDevice(self.pool)
        return lambda leave: beside.lease(leave=leave)

    @contextlib.contextmanager
    def _hold(self, leave: Callable[[], bool]) -> Iterator[Mapping[str, str]]:
        with self.pool.hold(leave) as self.name:
            try:
                yield variables(self.name)
            finally:
                self.name = ""


def device_of(config: Config) -> AbstractContextManager[Mapping[str, str]]:
    """For a single judgement. A GPU is held meanwhile. The cores are not: the judge waits until they are quiet."""
    if resolve_target(config.judge) == CPU:
        return contextlib.nullcontext({})
    return DevicePool.of_machine("cuda").for_job().lease(leave=lambda: False)


def variables(name: str) -> dict[str, str]:
    """What a command is told about the device that is held for it."""
    return {} if name == CPU else {VISIBLE: name}


def gpu_uuids(*, visible: str | None = None) -> tuple[str, ...]:
    """The GPUs that the driver lists, those in `visible` only (as CUDA_VISIBLE_DEVICES names them: index or UUID).

    Raises SandboxError where there is none.
    """
    listed = [tuple(part.strip() for part in line.split(",")) for line in _ask_gpu("--query-gpu=index,uuid")]
    known = {parts[0]: parts[1] for parts in listed if len(parts) == 2 and parts[1].startswith("GPU-")}
    if not known:
        raise SandboxError("nvidia-smi lists no GPU", hint="install the NVIDIA driver, or use --target cpu")
    if visible is None:
        return tuple(known.values())
    wanted = [name.strip() for name in visible.split(",") if name.strip()]
    found = [uuid for index, uuid in known.items() if any(_names(name, index, uuid) for name in wanted)]
    if not found:
        raise SandboxError(f"{VISIBLE}={visible} names none of this machine's GPUs", hint="unset it, or name one")
    return tuple(found)


def _names(wanted: str, index: str, uuid: str) -> bool:
    """CUDA takes an index or the beginning of a UUID."""
    return wanted == index if wanted.isdigit() else uuid.startswith(wanted)


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


@contextlib.contextmanager
def _lease(path: Path) -> Iterator[bool]:
    with contextlib.ExitStack() as stack:
        try:
            held = stack.enter_context(locked(path))
        except OSError as error:
            raise SandboxError(f"cannot open {path}: {error.strerror}", hint="set CUDA_AGENT_CACHE") from error
        yield held is not None

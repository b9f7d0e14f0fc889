"""What an episode on a node of a Ray cluster leases for its measurements: a GPU of that node, or all its cores.

A GPU is one of Ray's resources, so that other programs on the cluster stay away from it: the lease is a small actor on
this node that holds `num_gpus=1`, and within it the machine's own lease of `leases.py`, because Ray's choice among
several GPUs does not reach the sandbox. The cores are leased as everywhere on one machine.
"""

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from agent.batch.executor import MeteredDevice
from agent.batch.leases import DevicePool
from agent.config import Config
from agent.errors import SandboxError
from agent.judging.target import resolve_target
from agent.loop.waiting import Interrupted

POLL_S: Final = 0.5


class Holder:
    """An actor whose life is the lease."""

    def held(self) -> bool:
        return True


class NodeGpu:
    """One job's GPU leases: one of this node's GPUs by Ray's account, and one of `pool` where it is given."""

    def __init__(self, pool: DevicePool | None = None) -> None:
        self._pool = pool
        self.waited_s = 0.0
        self.held_s = 0.0

    @contextlib.contextmanager
    def lease(self, *, leave: Callable[[], bool]) -> Iterator[None]:
        """Raises Interrupted, and SandboxError where this node has no GPU."""
        ray = ray_module()
        holder = _holder(ray)
        began = time.monotonic()
        with contextlib.ExitStack() as stack:
            stack.callback(ray.kill, holder)
            try:
                _wait(ray, holder.held.remote(), leave)
                if self._pool is not None:
                    stack.enter_context(self._pool.hold(leave))
            finally:
                self.waited_s += time.monotonic() - began
            began = time.monotonic()
            try:
                yield
            finally:
                self.held_s += time.monotonic() - began


def ray_module() -> Any:
    """Ray itself, which is installed where this is called. Imported by name: it is an extra."""
    return importlib.import_module("ray")


def job_device(config: Config) -> MeteredDevice:
    target = resolve_target(config.judge)
    pool = DevicePool.of_machine(target)
    return NodeGpu(pool) if target == "cuda" else pool.for_job()


def _holder(ray: Any) -> Any:
    here = ray.get_runtime_context().get_node_id()
    node: dict[str, Any] = next((node for node in ray.nodes() if node["NodeID"] == here), {})
    if node.get("Resources", {}).get("GPU", 0) < 1:
        hint = "offer `sandbox` only on nodes with GPUs, or use --target cpu"
        raise SandboxError("this node of the Ray cluster has no GPU", hint=hint)
    place = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=False)
    return ray.remote(Holder).options(num_gpus=1, num_cpus=0, scheduling_strategy=place).remote()


def _wait(ray: Any, held: Any, leave: Callable[[], bool]) -> None:
    while not ray.wait([held], timeout=POLL_S / 2)[0]:
        if leave():
            raise Interrupted
    try:
        ray.get(held)
    except ray.exceptions.RayError as error:
        raise SandboxError(f"the GPU could not be leased: {' '.join(str(error).split())[:200]}") from error

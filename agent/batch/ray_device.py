"""What an episode on a node of a Ray cluster leases for its measurements: a GPU of that node, or all its cores.

A GPU is one of Ray's resources, so that other programs on the cluster stay away from it: the lease is a small actor on
this node that holds `num_gpus=1`, and within it the machine's own lease of `leases.py`, because Ray's choice among
several GPUs does not reach the sandbox. The cores are leased as everywhere on one machine.
"""

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from agent.batch.executor import MeteredDevice
from agent.batch.leases import DevicePool, Metered, gpu_uuids, variables
from agent.config import Config
from agent.errors import SandboxError
from agent.judging.target import resolve_target
from agent.loop.waiting import Interrupted

POLL_S: Final = 0.5


class Holder:
    """An actor whose life is the lease."""

    def held(self) -> bool:
        return True


@dataclass
class NodeGpu(Metered):
    """One job's GPU leases: one of this node's GPUs by Ray's account, and one of `pool`."""

    pool: DevicePool

    def lease(self, *, leave: Callable[[], bool]) -> AbstractContextManager[Mapping[str, str]]:
        """Raises Interrupted, and SandboxError where this node has no GPU."""
        return self.metered(self._hold(leave))

    @contextlib.contextmanager
    def _hold(self, leave: Callable[[], bool]) -> Iterator[Mapping[str, str]]:
        ray = ray_module()
        holder = _holder(ray)
        with contextlib.ExitStack() as stack:
            stack.callback(ray.kill, holder)
            _wait(ray, holder.held.remote(), leave)
            yield variables(stack.enter_context(self.pool.hold(leave)))


def ray_module() -> Any:
    """Ray itself, which is installed where this is called. Imported by name: it is an extra."""
    return importlib.import_module("ray")


def job_device(config: Config) -> MeteredDevice:
    """Ray hides all GPUs from a worker that asked for none, so that the variable says nothing here."""
    target = resolve_target(config.judge)
    return NodeGpu(pool=DevicePool(gpu_uuids())) if target == "cuda" else DevicePool.of_machine(target).for_job()


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

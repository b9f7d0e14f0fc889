"""The device that environments lease by default: the machine's, shared with `agent collect` and every other process."""

import functools

from agent.batch.leases import DevicePool
from agent.config import JudgeConfig
from agent.judging.target import resolve_target
from agent.loop.control import Device


def shared_device(config: JudgeConfig) -> Device:
    """All cores of the machine for target cpu, one of its GPUs for cuda. Raises SandboxError where none answers."""
    return _pool(resolve_target(config)).for_job()


@functools.cache
def _pool(target: str) -> DevicePool:
    return DevicePool.of_machine(target)

"""Asynchronous trainers: many episodes proceed at once, however few the event loop's own threads are."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tiny import TASK, calling, configuration

from agent.environments.kernel_env import KernelEnv
from agent.environments.observation import Step
from agent.environments.threads import AsyncKernelEnv

pytestmark = [pytest.mark.bubblewrap, pytest.mark.torch]
COUNT = 6
WAIT = "touch here; until [ -e go ]; do sleep 0.1; done; echo gone"


def test_all_episodes_are_in_a_command_at_the_same_time(tmp_path: Path) -> None:
    config = configuration("limits.turns=1")
    envs = [AsyncKernelEnv(KernelEnv(TASK, config=config, output=tmp_path)) for _ in range(COUNT)]

    async def play(env: AsyncKernelEnv) -> Step:
        await env.reset()
        step = await env.step(calling("bash", command=WAIT))
        await env.close()
        return step

    async def release() -> None:
        while len(list(tmp_path.glob("*/workspace/here"))) < COUNT:
            await asyncio.sleep(0.05)
        for workspace in tmp_path.glob("*/workspace"):
            (workspace / "go").touch()

    async def run() -> list[Step]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        _, *steps = await asyncio.gather(release(), *(play(env) for env in envs))
        return steps

    steps = asyncio.run(run())
    assert [step.observation.text for step in steps] == ["Exit code 0.\ngone"] * COUNT
    assert {(step.reward, step.info["reason"]) for step in steps} == {(-1.0, "turns")}


def test_a_cancelled_rollout_frees_its_sandbox(tmp_path: Path) -> None:
    env = AsyncKernelEnv(KernelEnv(TASK, config=configuration(), output=tmp_path))

    async def play() -> None:
        try:
            await env.reset()
            await env.step(calling("bash", command="touch here; sleep 1000"))
        finally:
            await env.close()

    async def run() -> None:
        task = asyncio.create_task(play())
        while not list(tmp_path.glob("*/workspace/here")):
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert not env.env.running

"""An environment for asynchronous trainers: each has a thread of its own, so that hundreds of episodes wait at once."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from agent.environments.incoming import Tokens
from agent.environments.kernel_env import KernelEnv
from agent.environments.observation import Observation, Step

T = TypeVar("T")


class AsyncKernelEnv:
    """A KernelEnv whose calls do not block the event loop. The loop's default threads would be a few per core only."""

    def __init__(self, env: KernelEnv) -> None:
        self.env = env
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kernel-env")

    async def reset(self) -> Observation:
        return await self._run(self.env.reset)

    async def step(self, message: Any, *, tokens: Tokens | None = None, finish_reason: str | None = None) -> Step:
        return await self._run(lambda: self.env.step(message, tokens=tokens, finish_reason=finish_reason))

    async def finish(self, detail: str = "") -> Step:
        return await self._run(lambda: self.env.finish(detail))

    async def close(self) -> None:
        """Ends a running step soon, and the thread with it."""
        self._thread.shutdown(wait=False)
        await asyncio.to_thread(self.env.close)

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

"""A real HTTP server per test, and backends that wait for nothing but say how long they would have."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings

from agent.backends.openai_api import OpenAIBackend
from agent.backends.scripted_server import Responder, ScriptedServer
from agent.backends.scripted_steps import Step
from agent.config import BackendConfig

settings.register_profile("untimed", deadline=None, max_examples=200)
settings.load_profile("untimed")


@dataclass
class Pair:
    """A backend and the server it talks to; `waits` are the seconds it would have slept."""

    backend: OpenAIBackend
    server: ScriptedServer
    waits: list[float]

    @property
    def sent(self) -> dict[str, Any]:
        return dict(self.server.chats[-1].body)


@pytest.fixture
def serve() -> Iterator[Callable[..., ScriptedServer]]:
    with ExitStack() as stack:

        def start(steps: Iterable[Step] | Responder, **options: Any) -> ScriptedServer:
            return stack.enter_context(ScriptedServer(steps, **options))

        yield start


@pytest.fixture
def connect(serve: Callable[..., ScriptedServer]) -> Iterator[Callable[..., Pair]]:
    """connect(*steps, server={…}, **config) -> Pair."""
    with ExitStack() as stack:

        def start(*steps: Step, server: dict[str, Any] | None = None, **config: Any) -> Pair:
            running = serve(steps, **(server or {}))
            values = {"model": "scripted", "base_url": running.base_url, **config}
            waits: list[float] = []
            backend = OpenAIBackend(BackendConfig(**values), sleep=waits.append)
            stack.callback(backend.close)
            return Pair(backend, running, waits)

        yield start

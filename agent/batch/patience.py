"""A backend that leaves its episode to be resumed where the language model's side fails for everybody.

Covers: an outage of any length and a wrong key cost no attempt and no turn: the run's log stays open, and it is gone on
with once the server answers. Not covered: what the sandbox held outside its workspace, as for every resumed run.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agent.backends.base import Backend, Message, Reply, ToolSchema
from agent.backends.retry import ChatCancelled
from agent.batch.faults import Fault, backend_fault
from agent.errors import BackendError, ContextOverflow
from agent.loop.control import Controls


class PatientBackend:
    """Asks `inner`; an error that others would meet too makes the episode quit, resumable, and is kept in `trouble`."""

    def __init__(self, inner: Backend, controls: Controls) -> None:
        self._inner = inner
        self._controls = controls
        self.trouble: BackendError | None = None

    @property
    def name(self) -> str:
        return self._inner.name

    def chat(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> Reply:
        try:
            return self._inner.chat(messages, tools)
        except ContextOverflow:
            raise
        except BackendError as error:
            if backend_fault(error) is Fault.BACKEND:
                raise
            self.trouble = error
            self._controls.request_quit()
            raise ChatCancelled from error

    def describe(self) -> Mapping[str, Any]:
        return self._inner.describe()

    def close(self) -> None:
        self._inner.close()

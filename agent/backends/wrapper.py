"""What backends that wrap another one share with it: its name, its cancel hook, its notice, its end."""

from collections.abc import Mapping
from typing import Any

from agent.backends.base import Backend
from agent.backends.retry import CancelHook


class Wrapper:
    """Base of the backends around another one."""

    def __init__(self, inner: Backend) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def notice(self) -> str:
        return str(getattr(self.inner, "notice", ""))

    @property
    def cancelled(self) -> CancelHook | None:
        hook: CancelHook | None = getattr(self.inner, "cancelled", None)
        return hook

    @cancelled.setter
    def cancelled(self, hook: CancelHook | None) -> None:
        self.inner.cancelled = hook  # type: ignore[attr-defined]

    def close(self) -> None:
        self.inner.close()


def constrain(backend: Backend, fields: Mapping[str, Any]) -> None:
    """Ask the server behind `backend` to hold the model to a notation; nothing where it cannot be asked."""
    ask = getattr(backend, "constrain", None)
    if ask is not None:
        ask(fields)

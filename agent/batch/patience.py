"""Outages of the language model's side: an episode is left to be resumed, and new work waits until somebody answers.

Covers: an outage of any length and a wrong key cost no attempt and no turn: the run's log stays open, and it is gone on
with once the server answers. Not covered: what the sandbox held outside its workspace, as for every resumed run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agent.backends.base import Backend, Message, Reply, ToolSchema
from agent.backends.retry import ChatCancelled
from agent.batch.faults import Fault, backend_fault
from agent.errors import BackendError, ContextOverflow
from agent.loop.control import Controls

MOST_STRIKES: Final = 3


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


@dataclass(frozen=True)
class Patience:
    """Pauses between tries while nobody answers, in seconds: from `first_s`, doubled up to `longest_s`."""

    first_s: float = 5.0
    longest_s: float = 60.0
    give_up_s: float = 3600.0


@dataclass
class Outage:
    """Whether the model's side answers, as far as the episodes have seen.

    While it does not, one episode at a time is started to try. An episode that fails while others get their replies is
    no outage: after MOST_STRIKES of these it is not patient any more, and ends as any episode whose backend failed.
    """

    patience: Patience
    since: float | None = None
    detail: str = ""
    _next_s: float = 0.0
    _pause_s: float = 0.0
    _trying: object = None
    _heard: dict[object, float] = field(default_factory=dict)
    """Job -> when it was last answered, failed or first started."""
    _replies: dict[object, float] = field(default_factory=dict)
    _strikes: dict[object, int] = field(default_factory=dict)

    def blocks(self, now: float) -> bool:
        """Whether no job may start now; during an outage one at a time may, after a pause."""
        return self.since is not None and (self._trying is not None or now < self._next_s)

    def started(self, key: object, now: float) -> None:
        """A job was started; during an outage it is the one that tries."""
        self._heard.setdefault(key, now)
        if self.since is not None:
            self._trying = key

    def answered(self, key: object, now: float) -> bool:
        """A job got a reply; True when an outage ended with it."""
        self._heard[key] = self._replies[key] = now
        self._strikes.pop(key, None)
        ended = self.since is not None
        self.since, self._trying, self._pause_s = None, None, 0.0
        return ended

    def failed(self, key: object, detail: str, now: float) -> bool:
        """A job was left because of an outage; True when it is the first of this one."""
        since = self._heard.get(key, now)
        if any(answered > since for other, answered in self._replies.items() if other != key):
            self._strikes[key] = self._strikes.get(key, 0) + 1
        self._heard[key] = now
        first = self.since is None
        if first or self._trying == key:
            self._pause_s = min(self.patience.longest_s, 2 * self._pause_s or self.patience.first_s)
            self._next_s, self._trying = now + self._pause_s, None
        self.since = now if self.since is None else self.since
        self.detail = detail
        return first

    def ended(self, key: object) -> None:
        """A job ended otherwise; it tells nothing about the server."""
        for known in (self._heard, self._replies, self._strikes):
            known.pop(key, None)
        if self._trying == key:
            self._trying = None

    def is_patient(self, key: object) -> bool:
        return self._strikes.get(key, 0) < MOST_STRIKES

    def too_long(self, now: float) -> bool:
        return self.since is not None and now - self.since >= self.patience.give_up_s

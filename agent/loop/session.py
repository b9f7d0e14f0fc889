"""What the nodes of the graph share while an episode runs: log, what is folded from it, model and sandbox."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

from agent.backends.base import Backend, Message
from agent.config import Config
from agent.loop.control import Controls, Device, Listener, Operator, Phase, Status
from agent.loop.conversation import Conversation
from agent.loop.ledger import Ledger
from agent.loop.limits import Clock
from agent.loop.waiting import Lease, leased
from agent.loop.window import Window
from agent.loop.workbench import Workbench
from agent.trajectory.events import Event, MessageEvent
from agent.trajectory.folder import RunFolder
from agent.trajectory.writer import EventWriter

E = TypeVar("E", bound=Event)


@dataclass
class Log:
    """The event log with everything that is folded from it; `record` keeps all of them in step."""

    writer: EventWriter
    ledger: Ledger
    conversation: Conversation

    def record(self, kind: type[E], **fields: Any) -> E:
        """Write one event, then count it. Raises RecordError; then nothing has changed."""
        event = self.writer.append(kind, **fields)
        self.ledger.apply(event)
        self.conversation.apply(event)
        return event


@dataclass
class Session:
    """The graph's context: lives in memory only, never in a checkpoint."""

    config: Config
    folder: RunFolder
    log: Log
    backend: Backend
    bench: Workbench
    listener: Listener
    operator: Operator | None
    controls: Controls
    clock: Clock
    device: Device | None = None
    window: Window | None = None

    @property
    def ledger(self) -> Ledger:
        return self.log.ledger

    def say(self, text: str, origin: str) -> MessageEvent:
        """Add a user message to the conversation."""
        return self.log.record(MessageEvent, message=Message(role="user", content=text), origin=origin)

    def status(self, phase: Phase, detail: str) -> None:
        self.listener.on_status(Status(phase, detail, self.ledger.turns, time.time()))

    def leased(self) -> AbstractContextManager[Lease]:
        """Holds the device. Raises Interrupted when a person asks to leave first."""
        if self.device is not None:
            self.status("acting", "waiting for the device")
        return leased(self.device, clock=self.clock, leave=lambda: self.controls.leaving)

    def ask(self, question: Callable[[Operator], Any]) -> Any:
        """Put something to the operator; the time until the answer does not count."""
        assert self.operator is not None
        self.status("paused", "waiting for you")
        with self.clock.stopped():
            return question(self.operator)

    def confirmed(self, name: str, arguments: Mapping[str, Any]) -> tuple[bool, str]:
        """Whether the action may run, and what the person said where it may not."""
        if self.operator is None or not self.config.run.confirm:
            return True, ""
        decision = self.ask(lambda operator: operator.confirm(name, arguments))
        return decision.run, decision.message

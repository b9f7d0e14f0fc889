"""The chat messages that the model sees, built from the events one by one; only shown text is kept in memory."""

from agent.backends.base import Message
from agent.trajectory.events import Event, MessageEvent, ObservationEvent, ReplyEvent


class Conversation:
    """Append-only. A turn costs the same at the start and after hundreds of turns.

    A message that is recorded while calls of the last reply have no observation yet is shown after the last of these:
    servers want a reply's results directly behind it.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._open: set[str] = set()
        self._later: list[Message] = []

    def apply(self, event: Event) -> None:
        message = to_message(event)
        if message is None:
            return
        if isinstance(event, MessageEvent) and self._open:
            self._later.append(message)
            return
        self.messages.append(message)
        if isinstance(event, ReplyEvent):
            self._open = {call.id for call in event.reply.calls}
        elif isinstance(event, ObservationEvent):
            self._open.discard(event.call_id)
        if not self._open:
            self.messages += self._later
            self._later.clear()


def to_message(event: Event) -> Message | None:
    """The message that an event adds to the conversation, if any."""
    match event:
        case MessageEvent():
            return event.message
        case ReplyEvent(reply=reply):
            return Message(role="assistant", content=reply.text, tool_calls=reply.calls, reasoning=reply.reasoning)
        case ObservationEvent():
            return Message(role="tool", content=event.text, tool_call_id=event.call_id)
        case _:
            return None

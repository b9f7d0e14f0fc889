"""The chat messages that the model sees, built from the events one by one; only shown text is kept in memory."""

from collections.abc import Iterable

from agent.backends.base import Message
from agent.trajectory.events import Event, MessageEvent, ObservationEvent, ReplyEvent


class Conversation:
    """Append-only. A turn costs the same at the start and after hundreds of turns."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def apply(self, event: Event) -> None:
        message = to_message(event)
        if message is not None:
            self.messages.append(message)


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


def messages_of(events: Iterable[Event]) -> list[Message]:
    """The whole conversation of a log."""
    return [message for event in events if (message := to_message(event)) is not None]

"""What a trainer gets back from an environment: conversation, tools, reward, and what is known so far."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from agent.backends.base import Message, ToolSchema
from agent.backends.sanitize import sanitize_history
from agent.backends.text_protocol import as_text
from agent.backends.wire import wire_message, wire_tool


@dataclass(frozen=True)
class Observation:
    """The conversation as the policy must see it next.

    `messages` is all of it, the policy's own included; `new` is what the environment added since the policy last spoke
    (at reset: the opening), results of calls first, in the order of the calls.
    """

    messages: tuple[Message, ...]
    new: tuple[Message, ...]
    tools: tuple[ToolSchema, ...]

    def openai_messages(self, *, new: bool = False) -> list[dict[str, Any]]:
        """As a backend would send them: arguments of calls are JSON strings, and what no server accepts is repaired."""
        wired = [wire_message(message) for message in sanitize_history(self.messages)]
        return wired[len(wired) - len(self.new) :] if new else wired

    def openai_tools(self) -> list[dict[str, Any]]:
        return [wire_tool(tool) for tool in self.tools]

    def text_messages(self) -> list[dict[str, Any]]:
        """For a policy without tool calls: the fenced-text protocol is explained in the system message."""
        return [wire_message(message) for message in as_text(self.messages, self.tools)]

    @property
    def text(self) -> str:
        """What is new, as one text."""
        return "\n\n".join(message.content for message in self.new)


class Step(NamedTuple):
    """One step's outcome. `reward` is 0.0 until the end, then the judge's (-1, 1, 2, 3); None: nobody can know.

    `info`: run_dir, turn, format_errors (in a row), usage {prompt_tokens, completion_tokens, cost_usd}; at the end also
    reason, detail, verdict (the report that counts, as data), error (None, or {type, message} of infrastructure
    trouble), judge_errors.
    """

    observation: Observation
    reward: float | None
    done: bool
    info: dict[str, Any]

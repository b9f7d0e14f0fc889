"""The backend that needs no language model: a deterministic expert behind the same protocol.

Covers tasks whose operators it has kernels for; for others it says which operator it is and ends without a submission.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent.backends.base import Message, Reply, ToolCall, ToolSchema, Usage
from agent.backends.builtin.policy import GiveUp, Turn, arguments_text, play, scene_of
from agent.backends.builtin.text import render
from agent.backends.replay import ScriptEnd
from agent.config import BackendConfig

VERSION: Final = 1
NOTICE: Final = (
    "no language model is configured: the built-in policy acts (a program, not an LLM); every action runs live"
)
WITHDRAW: Final = "rm -rf model_new.py kernels/*"


class BuiltinBackend:
    """Stateless: the next turn follows from the messages, so a resumed run goes on where it was."""

    cancelled = None

    def __init__(self, *, notice: str = "") -> None:
        self.notice = notice

    @classmethod
    def from_config(cls, config: BackendConfig) -> "BuiltinBackend":
        del config
        return cls(notice="the turns come from the built-in policy, a program and not an LLM")

    @property
    def name(self) -> str:
        return "builtin"

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "builtin", "author": "built-in policy", "version": VERSION, "is_llm": False}

    def chat(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> Reply:
        """The next turn. Raises ScriptEnd after the last one, or with the reason why there is no submission."""
        del tools
        system = next((message.content for message in messages if message.role == "system"), "")
        history = turns_so_far(messages)
        try:
            turn = _next_turn(system, history)
        except GiveUp as reason:
            turn = _withdrawal(history, str(reason))
        return _reply(turn, len(history) + 1)

    def close(self) -> None:
        pass


def turns_so_far(messages: Sequence[Message]) -> list[list[str]]:
    """The observations of every turn, in the order of its calls; a call without one counts as an empty text."""
    seen = {message.tool_call_id: message.content for message in messages if message.role == "tool"}
    said = [message for message in messages if message.role == "assistant"]
    return [[seen.get(call.id, "") for call in message.tool_calls] for message in said]


def _next_turn(system: str, history: Sequence[Sequence[str]]) -> Turn:
    course = play(scene_of(system))
    try:
        turn = next(course)
        for seen in history:
            turn = course.send(seen)
    except StopIteration:
        raise ScriptEnd("the built-in policy has submitted") from None
    return turn


def _withdrawal(history: Sequence[Sequence[str]], why: str) -> Turn:
    """What was written must not be judged: one turn takes it back, then the run ends and says why."""
    written = [k for k, seen in enumerate(history) if any(text.startswith(("Created", "Replaced")) for text in seen)]
    taken_back = bool(history) and len(history[-1]) == 1 and history[-1][0].strip() == "Exit code 0.\n(no output)"
    if not written or taken_back:
        raise ScriptEnd(f"the built-in policy submits nothing: {why}")
    return Turn(render("words.j2", moment="withdraw", why=why).strip(), (("bash", {"command": WITHDRAW}),))


def _reply(turn: Turn, number: int) -> Reply:
    calls = tuple(
        ToolCall(id=f"turn{number}_{k}", name=name, arguments=arguments_text(arguments))
        for k, (name, arguments) in enumerate(turn.actions, 1)
    )
    return Reply(
        text=turn.text,
        calls=calls,
        finish_reason="tool_calls",
        usage=Usage(cost_usd=0.0),
        model="builtin",
        raw={"builtin_turn": number, "version": VERSION},
    )

"""Tool calls for models without them: actions are written as fenced blocks and read back out of the reply.

Covers: servers and models that know nothing of tools, histories begun with native calls, malformed blocks (reported in
`Reply.raw["format_error"]`, nothing executed). Does not cover: models that answer in yet another notation.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent.backends.base import Backend, Message, Reply, ToolCall, ToolSchema
from agent.backends.fences import BODY_ARGUMENT, FormatError, Scan, arguments, render, scan
from agent.backends.foreign import with_foreign_calls
from agent.backends.grammar import MOST_BLOCKS, action_grammar
from agent.backends.presets import SHORT_TOKENS
from agent.backends.sanitize import dump_object, parse_object, sanitize_history
from agent.backends.wording import render_template
from agent.backends.wrapper import Wrapper, constrain

_SHELLS: Final = frozenset({"bash", "sh", "shell", "zsh", "console"})
_FOREIGN = re.compile(r"<tool_call>|<function[_=]?\w*|<\|?python_tag\|?>|\[TOOL_CALLS\]|<｜tool▁calls▁begin｜>")
_EXAMPLES: Final[tuple[tuple[str, Mapping[str, Any]], ...]] = (
    ("bash", {"command": "ls -l kernels"}),
    ("write_file", {"path": "notes.md", "content": "The fence is longer than the one inside:\n```cpp\nint x;\n```\n"}),
    ("edit_file", {"path": "kernels/scale.cpp", "old": "int tile = 8;", "new": "int tile = 16;"}),
)

_SHORT_EXAMPLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "bash": {"command": "ls -l kernels"},
    "write_file": {"path": "kernels/fast.cpp", "content": "(here the whole file)\n"},
    "edit_file": {"path": "model_new.py", "old": "(text that stands there)", "new": "(text instead of it)"},
    "submit": {"summary": "(why it is fast)"},
}


class TextProtocolBackend(Wrapper):
    """Speaks the fenced-text protocol with the model behind `inner`.

    A short window gets short instructions. `grammar`: the server is asked to hold the model to the notation.
    """

    def __init__(self, inner: Backend, *, context_tokens: int = 0, grammar: bool = False) -> None:
        super().__init__(inner)
        self._context_tokens = context_tokens
        self._grammar = grammar
        self._said: dict[Message, str] = {}

    def describe(self) -> Mapping[str, Any]:
        return {**self.inner.describe(), "tool_protocol": "text"}

    def chat(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> Reply:
        """One turn; calls get ids that are unique in the conversation."""
        turn = sum(message.role == "assistant" for message in messages)
        short = 0 < self._context_tokens < SHORT_TOKENS
        if self._grammar:
            constrain(self.inner, {"grammar": action_grammar(tools, most=1 if short else MOST_BLOCKS)})
        said = as_text(messages, tools, said=self._said, short=short)
        return read_actions(self.inner.chat(said, ()), tools, turn=turn)


def as_text(
    messages: Sequence[Message],
    tools: Sequence[ToolSchema],
    *,
    said: dict[Message, str] | None = None,
    short: bool = False,
) -> list[Message]:
    """The conversation without tool roles: the protocol in the system message, calls as blocks, results as user turns.

    Neighbouring user messages are joined, because many chat templates insist on alternation. What the model wrote is
    sent back as it was, so that earlier turns never change. `said` carries earlier turns' texts from call to call, so
    that a turn costs the same at the end of a run.
    """
    schemas = {tool.name: tool for tool in tools}
    system = system_text(messages)
    result = [Message(role="system", content=_instructions(system, tools, short=short))]
    calls: list[str] = []
    for message in sanitize_history(messages):
        if message.role == "assistant":
            calls = [call.name for call in message.tool_calls]
            total = len(calls)
            result.append(
                Message(role="assistant", content=_remembered(message, schemas, {} if said is None else said))
            )
        elif message.role == "tool":
            add_user(result, told_result(message, calls, total))
        elif message.role == "user":
            add_user(result, message.content)
    return result


def system_text(messages: Sequence[Message]) -> str:
    return "\n\n".join(message.content for message in messages if message.role == "system")


def told_result(message: Message, waiting: list[str], total: int) -> str:
    """A call's result as a user's words; takes the call's name from the front of `waiting`."""
    number, name = total - len(waiting) + 1, waiting.pop(0)
    values = {"name": name, "number": number, "total": total, "content": message.content}
    return render_template("text_result.j2", **values)


def add_user(result: list[Message], content: str) -> None:
    """Append, joined to a user message that is last: many chat templates insist on alternation."""
    if result[-1].role == "user":
        content = f"{result.pop().content}\n\n{content}"
    result.append(Message(role="user", content=content))


def _remembered(message: Message, schemas: Mapping[str, ToolSchema], said: dict[Message, str]) -> str:
    if message not in said:
        said[message] = _with_blocks(message, schemas)
    return said[message]


def _with_blocks(message: Message, schemas: Mapping[str, ToolSchema]) -> str:
    """The message's text, with its calls appended as blocks unless they stand in it already."""
    wanted = [(call.name, parse_object(call.arguments) or {}) for call in message.tool_calls]
    try:
        blocks = scan(message.content).blocks
        if [(block.name, arguments(block, schemas.get(block.name))) for block in blocks] == wanted:
            return message.content
    except FormatError:
        pass
    return "\n\n".join(part for part in (message.content, *(render(name, values) for name, values in wanted)) if part)


def _instructions(system: str, tools: Sequence[ToolSchema], *, short: bool) -> str:
    described = [
        {"name": tool.name, "description": tool.description.strip(), "usage": _usage(tool, short=short)}
        for tool in tools
    ]
    template = "text_protocol_short.j2" if short else "text_protocol.j2"
    examples = [render(name, values) for name, values in _EXAMPLES]
    return render_template(template, system=system, tools=described, examples=examples).strip()


def _usage(tool: ToolSchema, *, short: bool) -> str:
    """The block to write, with placeholders, optional arguments in brackets; short: examples, as weak models copy."""
    if short and tool.name in _SHORT_EXAMPLES:
        return render(tool.name, _SHORT_EXAMPLES[tool.name])
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", [])
    if tool.name == "edit_file":
        header, body = ["path"], ["<<<<<<< old", "OLD TEXT", "=======", "NEW TEXT", ">>>>>>> new"]
    else:
        main = BODY_ARGUMENT.get(tool.name)
        header, body = [key for key in properties if key != main], [main.upper()] if main in properties and main else []
    words = [f"{key}=…" if key in required else f"[{key}=…]" for key in header]
    return "\n".join([" ".join(["```action", tool.name, *words]), *body, "```"])


def read_actions(reply: Reply, tools: Sequence[ToolSchema], *, turn: int) -> Reply:
    """The reply with its blocks as calls. A reply that was cut off or refused has none; `text` stays as written."""
    if reply.calls or reply.finish_reason in ("length", "refusal"):
        return reply
    if (foreign := with_foreign_calls(reply, tools, turn=turn)) is not None:
        return foreign
    schemas = {tool.name: tool for tool in tools}
    try:
        found = scan(reply.text)
        complaint = _near_miss(found, reply.text, schemas)
        calls = tuple(
            ToolCall(id=f"text_{turn}_{k}", name=b.name, arguments=dump_object(arguments(b, schemas.get(b.name))))
            for k, b in enumerate(() if complaint else found.blocks)
        )
    except FormatError as error:
        complaint, calls = render_template("format_error.j2", kind="block", found=str(error)), ()
    if complaint:
        return reply.model_copy(update={"raw": {**reply.raw, "format_error": complaint}})
    return reply.model_copy(update={"calls": calls, "finish_reason": "tool_calls" if calls else reply.finish_reason})


def _near_miss(found: Scan, text: str, schemas: Mapping[str, ToolSchema]) -> str:
    """What to say about a reply that means to act but has no action that can be run; empty where all is well."""
    for block in found.blocks:
        if schemas and block.name not in schemas:
            return _complaint("unknown_action", block.name, names=", ".join(schemas))
    if found.blocks:
        return ""
    for info in found.other:
        word = info.split(" ", 1)[0].lower()
        if word in _SHELLS:
            return _complaint("shell_block", word)
        if word in schemas:
            return _complaint("no_action_word", info)
    foreign = _FOREIGN.search(text)
    return _complaint("foreign_call", foreign[0]) if foreign else ""


def _complaint(kind: str, found: str, *, names: str = "") -> str:
    return render_template("format_error.j2", kind=kind, found=found, names=names, example=render(*_EXAMPLES[0]))

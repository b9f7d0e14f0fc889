"""Fits a conversation into a model's window: what is old is condensed, the best kernel stays in view.

Covers: windows from 1,024 tokens up, with or without token counts from the server. What is recorded stays whole; a
reply's event says how many turns its view left out. Does not cover token-exact limits: characters are counted, and how
many make a token is taken from the server's own counts; a server that still refuses gets a shorter view, MOST_SHRINKS
times in a run, and then the episode ends with the window as its reason.
"""

import json
from collections.abc import Callable, Sequence
from typing import Final

from agent.backends.base import Message, ToolSchema
from agent.backends.presets import LOCAL, SHORT_TOKENS, names_a_server, reply_tokens, resolve
from agent.backends.text_protocol import as_text
from agent.backends.wire import wire_tool
from agent.config import BackendConfig, Config
from agent.loop.condense import SMALLEST_PART, Kept, View, condense

MOST_SHRINKS: Final = 6
SHRINK: Final = 0.8
CHARS_PER_TOKEN: Final = 3.0
_CHARS_PER_TOKEN_RANGE: Final = (1.5, 6.0)


def context_tokens(config: BackendConfig) -> int:
    """The window that is known for this backend; 0 where none is, or where no model reads the conversation."""
    resolved = resolve(config)
    asks_a_model = resolved.name == LOCAL or names_a_server(resolved) or "." in resolved.name
    return resolved.context_tokens if asks_a_model else 0


def is_short(config: BackendConfig) -> bool:
    return 0 < context_tokens(config) < SHORT_TOKENS


def fitted(config: Config) -> Config:
    """The same configuration with observations that leave room for others in a short window."""
    if not is_short(config.backend):
        return config
    most = int(context_tokens(config.backend) * CHARS_PER_TOKEN / 8)
    limits = config.limits.model_copy(
        update={"observation_chars": max(500, min(config.limits.observation_chars, most))}
    )
    return config.model_copy(update={"limits": limits})


def task_chars(config: BackendConfig) -> int:
    """How much of a task's text a short opening holds."""
    return int(context_tokens(config) * CHARS_PER_TOKEN / 4)


class Window:
    """One model's window during a run. Lives in memory: a resumed run starts from the prior again."""

    def __init__(self, tokens: int, *, reply: int, overhead_chars: int) -> None:
        self.prompt_tokens = max(256, tokens - reply)
        self._overhead = overhead_chars
        self._chars_per_token = CHARS_PER_TOKEN
        self._shrinks = 0
        self._cut = 0
        self._kept = Kept()

    @classmethod
    def of(cls, config: BackendConfig, tools: Sequence[ToolSchema]) -> "Window | None":
        """None where the window is not known."""
        tokens = context_tokens(config)
        if not tokens:
            return None
        reply = resolve(config).max_output_tokens or reply_tokens(tokens)
        return cls(tokens, reply=reply, overhead_chars=_overhead_chars(config, tools))

    @property
    def budget_chars(self) -> int:
        room = self.prompt_tokens * self._chars_per_token * SHRINK**self._shrinks - self._overhead
        return max(SMALLEST_PART, int(room))

    def view(self, messages: Sequence[Message], kept: Callable[[], Kept]) -> View:
        """The messages, the older turns condensed as far as the budget asks. `kept` is read only when they are."""
        whole = View(tuple(messages), 0)
        if self._cut == 0 and whole.chars <= self.budget_chars:
            return whole
        now = kept()
        # What turns still in view have changed may be shown as it was before them: the view's beginning stays the same.
        before = self._kept if self._cut and not (now.best and now != self._kept) else now
        shown = condense(messages, before, budget=self.budget_chars, cut=self._cut)
        if shown.hidden != self._cut and before is not now:
            shown = condense(messages, now, budget=self.budget_chars, cut=shown.hidden)
            before = now
        self._cut, self._kept = shown.hidden, before
        return shown

    def measured(self, view: View, prompt_tokens: int) -> None:
        """What the server counted for a view that it took."""
        if prompt_tokens > 0:
            low, high = _CHARS_PER_TOKEN_RANGE
            self._chars_per_token = min(high, max(low, (view.chars + self._overhead) / prompt_tokens))

    def shrink(self) -> bool:
        """After a refusal for length: whether a shorter view is worth a try."""
        self._shrinks += 1
        return self._shrinks <= MOST_SHRINKS


def _overhead_chars(config: BackendConfig, tools: Sequence[ToolSchema]) -> int:
    """What the actions' description adds to every request."""
    if resolve(config).tool_protocol == "text":
        return len(as_text((), tools, short=is_short(config))[0].content)
    return sum(len(json.dumps(wire_tool(tool))) for tool in tools)

"""Token-level rows of an episode: the server's own ids merged by prefix, never tokenised again.

A call whose prompt begins with everything of the row so far goes on with that row: what is new in the prompt was seen
by the model (mask 0), its reply was written by it (mask 1). Any other call begins a new row. The algorithm is that of
agent-lightning's rollout adapter. Checked: equal lengths, one logprob for each id, as many ones as completion tokens.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.export.episodes import Ids, Tokens


class TokensInconsistent(Exception):
    """What the server sent does not fit together; the episode is then not token-level."""


@dataclass(frozen=True)
class Span:
    """Where reply number `index` (from 0) of the episode stands in `response`."""

    index: int
    begin: int
    end: int


@dataclass
class TokenRow:
    """One training sequence. `logprobs` is None where one of its replies came without."""

    prompt: Ids
    response: Ids = field(default_factory=lambda: array("q"))
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] | None = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    def continues(self, prompt: Ids) -> bool:
        """Whether a prompt begins with this row."""
        edge, end = len(self.prompt), len(self.prompt) + len(self.response)
        return len(prompt) >= end and prompt[:edge] == self.prompt and prompt[edge:end] == self.response

    def observe(self, prompt: Ids) -> None:
        """Take what is new in a prompt that continues this row."""
        new = prompt[len(self.prompt) + len(self.response) :]
        self._take(new, 0, array("d", bytes(8 * len(new))))

    def reply(self, index: int, tokens: Tokens) -> None:
        begin = len(self.response)
        self._take(tokens.completion, 1, tokens.logprobs)
        self.spans.append(Span(index, begin, len(self.response)))

    def _take(self, ids: Ids, mask: int, logprobs: "array[float] | None") -> None:
        self.response.extend(ids)
        self.mask.extend([mask] * len(ids))
        if logprobs is None:
            self.logprobs = None
        elif self.logprobs is not None:
            self.logprobs.extend(logprobs)


def merge(calls: Sequence[Tokens]) -> list[TokenRow]:
    """Rows in order. Raises TokensInconsistent."""
    rows: list[TokenRow] = []
    for index, tokens in enumerate(calls):
        if tokens.logprobs is not None and len(tokens.logprobs) != len(tokens.completion):
            raise TokensInconsistent(f"{len(tokens.logprobs)} logprobs for {len(tokens.completion)} tokens")
        if tokens.logprobs is not None and not all(map(math.isfinite, tokens.logprobs)):
            raise TokensInconsistent("a logprob that is no number")
        if rows and rows[-1].continues(tokens.prompt):
            rows[-1].observe(tokens.prompt)
        else:
            rows.append(TokenRow(tokens.prompt[:]))
        rows[-1].reply(index, tokens)
    check(rows, calls)
    return rows


def check(rows: Sequence[TokenRow], calls: Sequence[Tokens]) -> None:
    """Raises TokensInconsistent where an invariant does not hold."""
    for row in rows:
        if len(row.mask) != len(row.response):
            raise TokensInconsistent("mask and ids differ in length")
        if row.logprobs is not None and len(row.logprobs) != len(row.response):
            raise TokensInconsistent("logprobs and ids differ in length")
        if row.logprobs is not None and any(p for p, m in zip(row.logprobs, row.mask, strict=True) if not m):
            raise TokensInconsistent("a logprob where the mask is 0")
    if sum(sum(row.mask) for row in rows) != sum(len(tokens.completion) for tokens in calls):
        raise TokensInconsistent("the mask has not one 1 for each completion token")


def rewards_of(rows: Sequence[TokenRow], reward: float) -> list[list[float]]:
    """For each row one value a response token: all 0, the reward at the last one that the model wrote."""
    values = [[0.0] * len(row.response) for row in rows]
    for row, rewards in zip(reversed(rows), reversed(values), strict=True):
        if 1 in row.mask:
            rewards[len(row.mask) - 1 - row.mask[::-1].index(1)] = reward
            break
    return values


def labels_of(row: TokenRow, *, trained: Sequence[bool]) -> tuple[list[int], list[int]]:
    """input_ids and labels: -100 for what the model did not write and for replies that are not trained on."""
    labels = [-100] * (len(row.prompt) + len(row.response))
    for span in row.spans:
        if trained[span.index]:
            offset = len(row.prompt)
            labels[offset + span.begin : offset + span.end] = row.response[span.begin : span.end].tolist()
    return row.prompt.tolist() + row.response.tolist(), labels

"""Budgets of an episode: when to stop, how long a command may take, and when to warn the model.

Covers turns, tokens, cost, time less the judge's reserve, format errors, refusals and repetition. Cost counts replies
with a known price only; where prices are unknown, tokens are the budget that holds.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from agent.config import LimitsConfig
from agent.loop.ledger import Ledger
from agent.trajectory.events import StopReason

WARN_AT: Final = 0.85
SHORTEST_COMMAND_S: Final = 1.0


class Clock:
    """Seconds an episode has been active, earlier processes of a resumed run included, a person's pauses not."""

    def __init__(self, *, earlier_s: float = 0.0) -> None:
        self._earlier_s = earlier_s
        self._began = time.monotonic()

    def elapsed_s(self) -> float:
        return self._earlier_s + time.monotonic() - self._began

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Time inside does not count."""
        before = time.monotonic()
        try:
            yield
        finally:
            self._began += time.monotonic() - before


@dataclass(frozen=True)
class Stop:
    """Why the loop must end now."""

    reason: StopReason
    detail: str


def remaining_s(limits: LimitsConfig, elapsed_s: float) -> float | None:
    """Seconds left before the judge's reserve begins; None without a time budget."""
    if not limits.time_s:
        return None
    return limits.time_s - min(limits.judge_reserve_s, limits.time_s / 2) - elapsed_s


def command_timeout_s(limits: LimitsConfig, elapsed_s: float, *, wanted_s: float | None, most_s: float) -> float:
    """What a command may take: what was asked for, within its limit and what is left of the time budget."""
    timeout_s = min(wanted_s or most_s, most_s)
    left = remaining_s(limits, elapsed_s)
    return timeout_s if left is None else max(SHORTEST_COMMAND_S, min(timeout_s, left))


def check(limits: LimitsConfig, ledger: Ledger, elapsed_s: float) -> Stop | None:
    """The first reason to end the loop, asked between steps; pending calls are still executed unless time is up."""
    left = remaining_s(limits, elapsed_s)
    if ledger.submitted:
        return Stop(StopReason.SUBMITTED, "")
    if ledger.refused is not None and ledger.refusals >= limits.refusals:
        return Stop(StopReason.REFUSED, ledger.refused)
    if left is not None and left <= 0:
        return Stop(
            StopReason.TIME,
            f"{limits.time_s:g} s, of which {limits.time_s - left - elapsed_s:g} s are kept for the judge",
        )
    if ledger.pending:
        return None
    return _check_between_turns(limits, ledger)


def _check_between_turns(limits: LimitsConfig, ledger: Ledger) -> Stop | None:
    if ledger.format_errors >= limits.format_errors:
        return Stop(StopReason.FORMAT, f"{ledger.format_errors} replies in a row without a usable action")
    if ledger.repeats >= limits.repeats:
        what = (
            "action with the same outcome" if ledger.period == 1 else f"{ledger.period} actions with the same outcomes"
        )
        return Stop(StopReason.STUCK, f"the same {what} {ledger.repeats} times in a row")
    if limits.turns and ledger.turns >= limits.turns:
        return Stop(StopReason.TURNS, f"{ledger.turns} turns")
    if limits.tokens and ledger.tokens >= limits.tokens:
        return Stop(StopReason.TOKENS, f"{ledger.tokens} tokens")
    if limits.cost_usd and ledger.cost_usd >= limits.cost_usd:
        return Stop(StopReason.COST, f"{ledger.cost_usd:.4f} USD")
    return None


def nearly_spent(limits: LimitsConfig, ledger: Ledger, elapsed_s: float) -> dict[str, str]:
    """Budgets of which more than WARN_AT is used: name -> what is left, in words with units."""
    spent: dict[str, str] = {}
    if limits.turns and ledger.turns >= WARN_AT * limits.turns:
        spent["turns"] = f"{limits.turns - ledger.turns} of {limits.turns} turns"
    if limits.tokens and ledger.tokens >= WARN_AT * limits.tokens:
        spent["tokens"] = f"{max(0, limits.tokens - ledger.tokens)} of {limits.tokens} tokens"
    if limits.cost_usd and ledger.cost_usd >= WARN_AT * limits.cost_usd:
        spent["cost"] = f"{max(0.0, limits.cost_usd - ledger.cost_usd):.2f} of {limits.cost_usd:.2f} USD"
    left = remaining_s(limits, elapsed_s)
    if left is not None and left <= (1 - WARN_AT) * (left + elapsed_s):
        spent["time"] = f"{max(0.0, left):.0f} of {left + elapsed_s:.0f} seconds"
    return spent

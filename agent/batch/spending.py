"""What the whole job has spent, counted run by run, and the budgets that end it.

Tokens and cost count everything the collection ever spent, earlier commands included; time is this command's; device
seconds are those that attempts.jsonl knows. Cost counts replies with a known price only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.batch.records import spent_by
from agent.batch.scan import Key, Result
from agent.errors import RecordError
from agent.loop.ledger import Ledger
from agent.trajectory.events import Event, ReplyEvent
from agent.trajectory.reader import read_events


@dataclass(frozen=True)
class JobBudget:
    """Limits of one collection; 0 means none."""

    tokens: int = 0
    cost_usd: float = 0.0
    time_s: float = 0.0
    device_s: float = 0.0


@dataclass(frozen=True)
class Amount:
    """Tokens and US dollars; `unpriced` counts what had no known price."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cost_usd + other.cost_usd,
            self.unpriced + other.unpriced,
        )

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def total_cost_usd(self) -> float | None:
        """None as soon as something had no known price."""
        return None if self.unpriced else self.cost_usd


class Spending:
    """Runs that have ended by path, running ones by job; a run that goes on after its end replaces what it was."""

    def __init__(self) -> None:
        self.device_s = 0.0
        self._ended: dict[Path, Amount] = {}
        self._running: dict[Key, Amount] = {}
        self._total = Amount()

    def begin(self, key: Key, run: Path | None) -> None:
        """A job starts; what its run had spent before is read from its log."""
        if run is not None and run in self._ended:
            self.count(run, Amount())
        self._running[key] = recorded(run)

    def see(self, key: Key, event: Event) -> None:
        if isinstance(event, ReplyEvent) and key in self._running:
            usage = event.reply.usage
            new = Amount(
                usage.prompt_tokens, usage.completion_tokens, usage.cost_usd or 0.0, int(usage.cost_usd is None)
            )
            self._running[key] += new

    def end(self, key: Key, run: Path | None, amount: Amount, *, device_s: float = 0.0) -> None:
        """A job ended; `amount` is what its run has come to."""
        seen = self._running.pop(key, Amount())
        self.device_s += device_s
        if run is not None:
            self.count(run, amount if amount.tokens >= seen.tokens else seen)

    def count(self, run: Path, amount: Amount) -> None:
        before = self._ended.get(run, Amount())
        self._ended[run] = amount
        self._total = Amount(
            self._total.prompt_tokens + amount.prompt_tokens - before.prompt_tokens,
            self._total.completion_tokens + amount.completion_tokens - before.completion_tokens,
            self._total.cost_usd + amount.cost_usd - before.cost_usd,
            self._total.unpriced + amount.unpriced - before.unpriced,
        )

    def count_line(self, line: Mapping[str, Any], *, collection: Path) -> None:
        """What attempts.jsonl knows of one attempt."""
        self.device_s += float(line.get("device_s") or 0.0)
        if line.get("run"):
            self.count(collection / str(line["run"]), amount_of(*spent_by(line)))

    def count_result(self, result: Result) -> None:
        self.count(result.run, amount_of(result.prompt_tokens, result.completion_tokens, result.cost_usd))

    @property
    def ended(self) -> Amount:
        return self._total

    @property
    def now(self) -> Amount:
        """Running jobs included."""
        return sum(self._running.values(), self._total)

    def over(self, budget: JobBudget, *, elapsed_s: float) -> str:
        """Which budget is used up, in words; empty where none is."""
        spent = self.now
        for limit, used, words in (
            (budget.tokens, spent.tokens, "tokens"),
            (budget.cost_usd, spent.cost_usd, "US dollars"),
            (budget.time_s, elapsed_s, "seconds"),
            (budget.device_s, self.device_s, "device seconds"),
        ):
            if limit and used >= limit:
                return f"the job's budget of {limit:g} {words} is used up"
        return ""


def amount_of(prompt_tokens: int, completion_tokens: int, cost_usd: float | None) -> Amount:
    return Amount(prompt_tokens, completion_tokens, cost_usd or 0.0, int(cost_usd is None))


def recorded(run: Path | None) -> Amount:
    """What the log of an unfinished run has counted."""
    ledger = Ledger()
    try:
        for event in read_events(run / "events.jsonl") if run else ():
            ledger.apply(event)
    except (RecordError, OSError):  # a damaged log is found by the job itself
        pass
    return Amount(ledger.prompt_tokens, ledger.completion_tokens, ledger.cost_usd, ledger.unpriced)

"""What a call costs: prices from the configuration, else from prices.json, else unknown.

Covers list prices of the hosts named in prices.json at its `as_of` date. Does not cover batch or priority tiers,
long-context surcharges or private discounts: set backend.price_* for those. An unknown price is None, never 0.
"""

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agent.config import BackendConfig


@dataclass(frozen=True)
class Price:
    """USD per million tokens."""

    prompt: float
    completion: float
    cached: float

    def cost_usd(self, *, prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> float:
        """`prompt_tokens` includes the cached ones, as in the OpenAI API."""
        cached = min(cached_tokens, prompt_tokens)
        fresh = prompt_tokens - cached
        return (fresh * self.prompt + cached * self.cached + completion_tokens * self.completion) / 1e6


def price_for(config: BackendConfig, *, base_url: str) -> Price | None:
    """Both prices of the configuration, or an entry of the table for this host and model, or None."""
    if config.price_in_per_mtok is not None and config.price_out_per_mtok is not None:
        cached = config.price_cached_per_mtok
        prompt = config.price_in_per_mtok
        return Price(prompt, config.price_out_per_mtok, prompt if cached is None else cached)
    return listed_price(config.model, host=urlsplit(base_url).hostname or "")


def listed_price(model: str, *, host: str) -> Price | None:
    """The table's entry named exactly so, or the longest one that `model` extends by a date (gpt-4o-2024-08-06)."""
    entries: dict[str, dict[str, float]] = _table()["hosts"].get(host, {})
    name = model.rsplit("/", 1)[-1]
    matches = [key for key in entries if name == key or re.fullmatch(re.escape(key) + r"-\d{4}[\d-]*", name)]
    if not matches:
        return None
    entry = entries[max(matches, key=len)]
    return Price(entry["in"], entry["out"], entry.get("cached", entry["in"]))


def prices_as_of() -> str:
    """The date of the table."""
    return str(_table()["as_of"])


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(Path(__file__).with_name("prices.json").read_text(encoding="utf-8"))
    return table

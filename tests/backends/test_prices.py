"""Prices: configured ones win, listed ones need host and name to fit, all others are unknown."""

import pytest

from agent.backends.prices import listed_price, price_for
from agent.config import BackendConfig

OPENAI = "https://api.openai.com/v1"


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4o-2024-08-06", "openai/gpt-4o"])
def test_listed_models_and_their_dated_names(model: str) -> None:
    price = listed_price(model, host="api.openai.com")
    assert price is not None and (price.prompt, price.completion, price.cached) == (2.5, 10.0, 1.25)


@pytest.mark.parametrize("model", ["gpt-4o-audio-preview", "gpt-4oo", "gpt-4", "qwen3", ""])
def test_a_similar_name_is_not_the_model(model: str) -> None:
    assert listed_price(model, host="api.openai.com") is None


def test_longer_names_go_first() -> None:
    price = listed_price("gpt-4o-mini-2024-07-18", host="api.openai.com")
    assert price is not None and price.prompt == 0.15


def test_the_same_name_elsewhere_has_no_listed_price() -> None:
    assert price_for(BackendConfig(model="gpt-4o"), base_url="http://127.0.0.1:8000/v1") is None
    assert price_for(BackendConfig(model="gpt-4o"), base_url=OPENAI) is not None


def test_configured_prices_win() -> None:
    config = BackendConfig(model="gpt-4o", price_in_per_mtok=1.0, price_out_per_mtok=0.0)
    price = price_for(config, base_url=OPENAI)
    assert price is not None and (price.prompt, price.completion, price.cached) == (1.0, 0.0, 1.0)


def test_half_a_configured_price_is_none_at_all() -> None:
    assert price_for(BackendConfig(model="x", price_in_per_mtok=1.0), base_url=OPENAI) is None


def test_more_cached_than_prompt_tokens_cannot_make_a_negative_cost() -> None:
    price = listed_price("gpt-4o", host="api.openai.com")
    assert price is not None
    assert price.cost_usd(prompt_tokens=10, completion_tokens=0, cached_tokens=50) == pytest.approx(10 * 1.25 / 1e6)

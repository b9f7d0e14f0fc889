"""How many tasks of each kind a set has: kinds are torch#1 to torch#5 (operators in a layer) and transformers."""

from collections.abc import Mapping
from typing import Final

from agent.errors import ConfigError

TRANSFORMERS: Final = "transformers"
KINDS: Final = ("torch#1", "torch#2", "torch#3", "torch#4", "torch#5", TRANSFORMERS)
# Table 3 of arXiv 2602.24286, in percent.
PAPER: Final = {
    "torch#1": 3.40,
    "torch#2": 83.77,
    "torch#3": 7.62,
    "torch#4": 2.80,
    "torch#5": 1.23,
    TRANSFORMERS: 1.18,
}


def parse_mix(text: str) -> dict[str, float]:
    """`paper`, `uniform`, or `torch#1:10,torch#2:90`; shares in percent of their sum. Raises ConfigError."""
    if text == "paper":
        return dict(PAPER)
    if text == "uniform":
        return {kind: 100 / len(KINDS) for kind in KINDS}
    shares: dict[str, float] = {}
    for part in text.split(","):
        kind, _, share = (piece.strip() for piece in part.partition(":"))
        try:
            value = float(share)
        except ValueError:
            value = -1.0
        if kind not in KINDS or kind in shares or not 0 <= value < float("inf"):
            hint = f"paper, uniform, or shares such as torch#2:80,torch#3:20; kinds: {', '.join(KINDS)}"
            raise ConfigError(f"--mix {text!r} cannot be read", hint=hint)
        shares[kind] = value
    total = sum(shares.values())
    if total <= 0:
        raise ConfigError(f"--mix {text!r} asks for nothing")
    return {kind: 100 * share / total for kind, share in shares.items()}


def quotas(mix: Mapping[str, float], count: int) -> dict[str, int]:
    """Whole numbers that add up to `count`, by largest remainders: off by less than one task each."""
    total = sum(mix.values())
    exact = {kind: count * mix.get(kind, 0.0) / total for kind in KINDS}
    found = {kind: int(value) for kind, value in exact.items()}
    order = sorted(KINDS, key=lambda kind: (found[kind] - exact[kind], KINDS.index(kind)))
    for kind in order[: count - sum(found.values())]:
        found[kind] += 1
    return found

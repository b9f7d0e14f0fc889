"""The four filters that the CUDA Agent paper (arXiv 2602.24286, section 3.3) applies before rejection fine-tuning."""

from collections.abc import Sequence
from typing import Final

from agent.errors import ConfigError
from agent.export.filters import Filter

MOST_REPEATS: Final = 3
PAPER_FILTERS: Final[dict[str, Filter]] = {
    "positive": Filter("positive: reward > 0", lambda facts: facts.reward is not None and facts.reward > 0),
    "loops": Filter(
        f"loops: the same action at most {MOST_REPEATS} times", lambda facts: facts.most_repeats <= MOST_REPEATS
    ),
    "schemas": Filter("schemas: no unknown action, no broken arguments", lambda facts: facts.schema_errors == 0),
    "verified": Filter("verified: the final state was accepted", lambda facts: facts.final_accepted),
}


def paper_filters(names: Sequence[str]) -> tuple[Filter, ...]:
    """By name, `all` for every one, commas allowed; in the paper's order. Raises ConfigError."""
    wanted = {part.strip() for name in names for part in name.split(",")}
    unknown = sorted(wanted - {*PAPER_FILTERS, "all"})
    if unknown:
        raise ConfigError(f"there is no paper filter {unknown[0]!r}", hint=f"there are all, {', '.join(PAPER_FILTERS)}")
    return tuple(found for name, found in PAPER_FILTERS.items() if name in wanted or "all" in wanted)

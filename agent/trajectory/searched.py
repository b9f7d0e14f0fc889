"""Which folder goes on for a run: its own, or that of the search that it is a try of."""

from pathlib import Path
from typing import Final

from agent.config import expanded

RECORD: Final = "search.json"
SETTINGS: Final = "config.json"


def is_search(path: Path) -> bool:
    return (expanded(path) / RECORD).is_file()


def resumable(run: Path) -> Path:
    """The search's folder where `run` is a try of one that kept its settings, else `run`."""
    around = expanded(run).absolute().parent
    return around if is_search(around) and (around / SETTINGS).is_file() else run

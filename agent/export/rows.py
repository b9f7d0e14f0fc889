"""What a row is made from: a unit of work (a run, a pair, a task), and the source of its scrubbed episodes."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent.export.chat import Chat, chat_of
from agent.export.episodes import Episode, read_episode
from agent.export.facts import Facts
from agent.export.filters import parse_filter
from agent.export.scrub import Host, Rules, recorded_paths, rules_for, scrub_json
from agent.trajectory.folder import RunFolder

DEFAULT: Final = "default"


@dataclass(frozen=True)
class Unit:
    """`facts` has one run, the two of a pair (chosen first), or the one that stands for a task.

    `index` counts units in the order of the files; `task` holds what is known about all runs of the task.
    """

    index: int
    split: str
    facts: tuple[Facts, ...]
    task: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One record for one of the format's data sets; `name` is its file's name where each record has its own file."""

    record: dict[str, Any]
    set: str = DEFAULT
    name: str = ""


@dataclass(frozen=True)
class RowSettings:
    """What decides how rows look, beside the format."""

    host: Host
    words: tuple[str, ...] = ()
    train_format_errors: bool = False
    desirable: str = "reward > 0"


class Source:
    """Reads episodes for a format; counts what was scrubbed and why ids were left out."""

    def __init__(self, settings: RowSettings) -> None:
        self.settings = settings
        self.desirable = parse_filter(settings.desirable).keeps
        self.scrubbed: Counter[str] = Counter()
        self.withheld: Counter[str] = Counter()
        self._rules: tuple[str, Rules] | None = None

    def episode(self, facts: Facts) -> Episode:
        """Raises Skipped where the run has changed since it was selected."""
        return read_episode(RunFolder(Path(facts.path)))

    def rules(self, episode: Episode) -> Rules:
        """Kept for the episode at hand: every part of it asks."""
        run = str(episode.folder.path)
        if self._rules is None or self._rules[0] != run:
            recorded = recorded_paths([str(episode.task.path), episode.start.backend, episode.start.sandbox])
            rules = rules_for(self.settings.host, run=run, recorded=recorded, words=self.settings.words)
            self._rules = run, rules
        return self._rules[1]

    def chat(self, episode: Episode) -> Chat:
        chat = chat_of(episode, self.rules(episode), train_format_errors=self.settings.train_format_errors)
        self.scrubbed.update(chat.scrubbed)
        return chat

    def clean(self, episode: Episode, value: Any) -> Any:
        """A value that is no part of the conversation, scrubbed."""
        return scrub_json(value, self.rules(episode), self.scrubbed)


def about(facts: Facts) -> dict[str, Any]:
    """Columns that say where a row comes from."""
    return {"run_id": facts.run_id, "task": facts.task, "task_sha256": facts.task_sha256, "reward": facts.reward}


ABOUT: Final = {"run_id": "text", "task": "text", "task_sha256": "text", "reward": "int"}

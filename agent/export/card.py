"""The data card: card.json for programs, README.md for people and for the `datasets` library. No clock, no host names:
the same runs give the same card."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from agent import __version__
from agent.export.columns import yaml_feature
from agent.export.facts import Facts
from agent.export.files import DataFile
from agent.export.formats import Format
from agent.export.rows import DEFAULT
from agent.export.selection import Step
from agent.export.similarity import THRESHOLD, Nearest

SCHEMA_VERSION: Final = 1
LISTED_TASKS: Final = 20
CONVENTIONS: Final = (
    'Arguments that were no JSON object stand as `{"invalid_arguments": "<raw text>"}`; such a reply has no loss.',
    "Lone surrogates stand as U+FFFD.",
    "Token ids are the server's own, never tokenised again; they are withheld where the text was scrubbed.",
    "Secrets, host paths, user and host names are replaced by `<secret>`, `<home>`, `<run>`, `<path>`, `<tmp>`, "
    "`<env>`, `<user>`, `<host>`.",
)


@dataclass(frozen=True)
class Card:
    """Everything that the card says; all counts are exact."""

    format: str
    about: str
    layout: str
    options: Mapping[str, Any]
    funnel: Sequence[Step]
    skipped: Mapping[str, int]
    skipped_examples: Mapping[str, Sequence[str]]
    facts: Sequence[Facts]
    files: Sequence[DataFile]
    scrubbed: Mapping[str, int]
    withheld: Mapping[str, int]
    licences: Mapping[str, int]
    sources: Mapping[str, int]
    models: Mapping[str, int]
    contamination: Mapping[str, Any] | None
    provenance_sha256: str

    def data(self) -> dict[str, Any]:
        """card.json."""
        facts = self.facts
        return {
            "schema_version": SCHEMA_VERSION,
            "agent_version": __version__,
            "format": self.format,
            "layout": self.layout,
            "options": dict(self.options),
            "funnel": [asdict(step) for step in self.funnel],
            "skipped": dict(sorted(self.skipped.items())),
            "skipped_examples": {reason: list(self.skipped_examples[reason]) for reason in sorted(self.skipped)},
            "runs": len(facts),
            "tasks": len({one.task_sha256 for one in facts}),
            "files": [asdict(file) for file in self.files],
            "reward_histogram": reward_histogram(facts),
            "models": dict(sorted(self.models.items())),
            "language_model": {"runs": sum(one.is_llm for one in facts), "of": len(facts)},
            "agent_versions": _counted(one.agent_version for one in facts),
            "judge_versions": _counted(one.judge_version for one in facts),
            "judge_tools_sha256": _counted(one.tools_sha256 or "not recorded" for one in facts),
            "targets": _counted(one.target or "unknown" for one in facts),
            "token_level_runs": sum(one.token_level for one in facts),
            "sources": dict(sorted(self.sources.items())),
            "licences": dict(sorted(self.licences.items())),
            "contamination": self.contamination,
            "scrubbed": dict(sorted(self.scrubbed.items())),
            "withheld": dict(sorted(self.withheld.items())),
            "provenance": {"file": "provenance.jsonl", "sha256": self.provenance_sha256},
        }

    def markdown(self, found: Format) -> str:
        """README.md; its head tells `datasets` which files belong to which split."""
        parts = [
            _head(self.files, self.layout, found),
            f"# Trajectories of cuda-agent: {self.format}\n\n{self.about}. {len(self.facts)} runs of "
            f"{len({one.task_sha256 for one in self.facts})} tasks, written by `agent export` {__version__}.\n",
            _section("Files", [f"`{file.path}`: {file.rows} rows ({file.set}, {file.split})" for file in self.files]),
            _columns(found, self.files),
            _section("Funnel", [_step(step) for step in self.funnel]),
            _section("Skipped", _lines(self.skipped)),
            _section("Rewards", _lines(reward_histogram(self.facts))),
            _section("Models", _lines(self.models)),
            _section("Judge", _lines(_counted(one.judge_version for one in self.facts))),
            _section("Licences of the tasks", _lines(self.licences)),
            _contamination(self.contamination),
            _section("Scrubbed", _lines(self.scrubbed)),
            _section("Left out of rows", _lines(self.withheld)),
            _section("Conventions", list(CONVENTIONS)),
        ]
        return "\n".join(part for part in parts if part)


def reward_histogram(facts: Sequence[Facts]) -> dict[str, int]:
    """Runs by reward; "unknown" where there is none."""
    counts = Counter("unknown" if one.reward is None else str(one.reward) for one in facts)
    return {key: counts[key] for key in ("-1", "1", "2", "3", "unknown") if counts[key]}


def contamination_report(neighbours: Mapping[str, Nearest | None], benchmark: int) -> dict[str, Any]:
    """How near each task is to the benchmark; dropped tasks first, then the nearest ones."""
    known = [(task, near) for task, near in neighbours.items() if near is not None]
    known.sort(key=lambda item: (-item[1].similarity, item[0]))
    tasks = [
        {"task_sha256": task, "nearest": near.name, "similarity": near.similarity, "dropped": near.contaminated}
        for task, near in known
    ]
    return {
        "problems": benchmark,
        "threshold": THRESHOLD,
        "tasks": len(neighbours),
        "dropped": sum(near.contaminated for _, near in known),
        "not_comparable": len(neighbours) - len(known),
        "nearest": tasks,
    }


def provenance_record(facts: Facts, *, source: str, model: str, split: str) -> dict[str, Any]:
    """One line of provenance.jsonl."""
    return {
        "run_id": facts.run_id,
        "events_sha256": facts.events_sha256,
        "task": facts.task,
        "task_sha256": facts.task_sha256,
        "source": source,
        "split": split,
        "agent_version": facts.agent_version,
        "judge_version": facts.judge_version,
        "judge_tools_sha256": facts.tools_sha256,
        "model": model,
        "is_llm": facts.is_llm,
        "reward": facts.reward,
        "verdict": facts.verdict,
        "stop_reason": facts.reason,
        "turns": facts.turns,
    }


def _head(files: Sequence[DataFile], layout: str, found: Format) -> str:
    """What `datasets.load_dataset(FOLDER)` reads: files by set and split; for JSONL also the columns' types.

    Without them a type would be taken from the first 10 MB, where a column may hold nulls only.
    """
    if layout == "files":
        return ""
    sets: dict[str, list[DataFile]] = {}
    for file in files:
        sets.setdefault(file.set, []).append(file)
    names = sorted(sets, key=lambda name: (name != DEFAULT, name))
    lines = ["---", "configs:"]
    for name in names:
        lines += [f"- config_name: {name}", "  data_files:"]
        for file in sets[name]:
            lines += [f"  - split: {file.split}", f"    path: {file.path}"]
    if layout == "jsonl":
        lines.append("dataset_info:")
        for name in names:
            lines += [f"- config_name: {name}", "  features:"]
            lines += [f"  {line}" for kind in found.sets[name].items() for line in yaml_feature(*kind)]
    return "\n".join([*lines, "---", ""])


def _columns(found: Format, files: Sequence[DataFile]) -> str:
    present = {file.set for file in files}
    return _section(
        "Columns", [f"{name}: {', '.join(columns)}" for name, columns in found.sets.items() if name in present]
    )


def _contamination(report: Mapping[str, Any] | None) -> str:
    if report is None:
        return _section("Contamination", ["not checked (`--decontaminate KERNELBENCH_CHECKOUT`)"])
    lines = [
        f"{report['tasks']} tasks against {report['problems']} problems; similarity above {report['threshold']} is "
        f"dropped: {report['dropped']}. Not comparable: {report['not_comparable']}"
    ]
    for item in report["nearest"][:LISTED_TASKS]:
        dropped = " (dropped)" if item["dropped"] else ""
        lines.append(f"`{item['task_sha256'][:12]}`: {item['nearest']} {item['similarity']:.4f}{dropped}")
    rest = len(report["nearest"]) - LISTED_TASKS
    return _section("Contamination", [*lines, f"{rest} more in card.json"] if rest > 0 else lines)


def _step(step: Step) -> str:
    alone = "" if step.alone is None else f" (alone it would remove {step.alone})"
    return f"{step.name}: removed {step.removed}, left {step.left}{alone}"


def _section(title: str, lines: Sequence[str]) -> str:
    return f"## {title}\n" + "".join(f"- {line}\n" for line in (lines or ["none"]))


def _lines(counts: Mapping[str, int]) -> list[str]:
    return [f"{name}: {count}" for name, count in counts.items()]


def _counted(values: Any) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))

"""The tables of a suite: Markdown for a person, one JSON object for programs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from agent.bench.outcomes import Outcome
from agent.bench.published import LEVELS, SOURCE, TABLE, Published
from agent.bench.scores import BASELINES, THRESHOLDS, Score, score_all
from agent.tasks.candidates import Refusal

SUMMARY: Final = "summary.json"
TABLES: Final = "summary.md"


def summary(
    suite: str, outcomes: Sequence[Outcome], *, about: dict[str, Any], refused: Sequence[Refusal] = ()
) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "suite": suite,
        "about": about,
        "scores": [score.as_dict() for score in score_all(outcomes)],
        "no_task": [{"where": one.where, "code": one.code, "detail": one.detail} for one in refused],
        "outcomes": [outcome.model_dump(mode="json") for outcome in outcomes],
    }


def write(
    folder: Path, suite: str, outcomes: Sequence[Outcome], *, about: dict[str, Any], refused: Sequence[Refusal] = ()
) -> None:
    data = summary(suite, outcomes, about=about, refused=refused)
    replace_file(folder / SUMMARY, json.dumps(data, indent=1) + "\n")
    replace_file(folder / TABLES, markdown(suite, outcomes, about=about, refused=refused))


def markdown(suite: str, outcomes: Sequence[Outcome], *, about: dict[str, Any], refused: Sequence[Refusal] = ()) -> str:
    scores = score_all(outcomes)
    facts = ", ".join(f"{name} {value}" for name, value in about.items() if value)
    parts = [f"# {suite}\n\n{facts}\n", _rates(scores), _fast(scores), _tasks(outcomes), _published(scores)]
    parts.append(_no_tasks(refused))
    return "\n".join(part for part in parts if part)


def _rates(scores: Sequence[Score]) -> str:
    head = (
        "level",
        "tasks",
        "pass",
        "faster than eager",
        "than compile",
        "decided: than eager",
        "than compile",
        "geomean, eager",
        "compile",
    )
    rows = [
        (
            one.level,
            str(one.tasks),
            _percent(one.passed),
            *(_percent(one.fast[name][1.0]) for name in BASELINES),
            *(_percent(one.decided[name]) for name in BASELINES),
            *(_times(one.geomean[name]) for name in BASELINES),
        )
        for one in scores
    ]
    unjudged = sum(one.unjudged for one in scores if one.level == "overall")
    note = f"\n{unjudged} tasks could not be judged and count as not solved; the same command tries them again.\n"
    return table(head, rows) + (note if unjudged else "")


def _fast(scores: Sequence[Score]) -> str:
    head = ("fast_p", "baseline", *(f"p = {p:g}" for p in THRESHOLDS))
    rows = [
        (one.level, name, *(_percent(one.fast[name][p]) for p in THRESHOLDS)) for one in scores for name in BASELINES
    ]
    return table(head, rows)


def _tasks(outcomes: Sequence[Outcome]) -> str:
    head = ("task", "result", "reward", "candidate ms", "eager ms", "compile ms", "× eager", "× compile", "s")
    rows = []
    for one in outcomes:
        times = one.median_us
        medians = (times.candidate, times.eager, times.compile) if times else (None, None, None)
        result = one.status if one.status == "accepted" else (one.reasons[0].code if one.reasons else one.status)
        ratios = tuple(_times(one.ratio(name)) for name in BASELINES)
        reward = "–" if one.reward is None else str(one.reward)
        rows.append((one.task, result, reward, *(_ms(value) for value in medians), *ratios, f"{one.seconds:.0f}"))
    return table(head, rows)


def _no_tasks(refused: Sequence[Refusal]) -> str:
    """Files of the suite that no denominator counts, because they are no tasks."""
    if not refused:
        return ""
    rows = [(one.where, one.code, one.detail) for one in refused]
    return f"Not in any figure: no tasks.\n\n{table(('file', 'why', ''), rows)}"


def _published(scores: Sequence[Score]) -> str:
    """Only beside a suite that has KernelBench's levels."""
    ours = {one.level: one for one in scores}
    if not any(level in ours for level in LEVELS[1:]):
        return ""
    names = [level for level in LEVELS if level in ours]
    rows = [("this run", *(_five(ours[name]) for name in names))]
    rows += [(model, *(_theirs(row[LEVELS.index(name)]) for name in names)) for model, row in TABLE.items()]
    text = "Pass / faster than eager / than compile in %, geomean against eager / compile. "
    return f"{text}Others: {SOURCE}, its own judge and machine.\n\n{table(('', *names), rows)}"


def _five(one: Score) -> str:
    shares = (one.passed, one.fast["eager"][1.0], one.fast["compile"][1.0])
    return " / ".join([*(f"{100 * share:.1f}" for share in shares), *(_times(one.geomean[name]) for name in BASELINES)])


def _theirs(one: Published) -> str:
    rates = f"{one.passed:g} / {one.faster_eager:g} / {one.faster_compile:g}"
    return f"{rates} / {one.geomean_eager:.2f} / {one.geomean_compile:.2f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines) + "\n"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}"


def _ms(microseconds: float | None) -> str:
    return "–" if microseconds is None else f"{microseconds / 1e3:.3f}"


def replace_file(path: Path, text: str) -> None:
    """A reader sees the old content or the new one."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)

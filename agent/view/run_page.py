"""The page of one run: verdict and intervals, turns, submission; without any script."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from agent import __version__
from agent.config import JudgeConfig
from agent.trajectory.events import RunStart, StopReason
from agent.ui.console import one_line, safe
from agent.ui.portable import submitted_files
from agent.ui.quantities import show_cost, show_count, show_duration, show_us
from agent.ui.summaries import STOP_WORDS, reward_meaning
from agent.view.chart import speedup_chart
from agent.view.code import PAGE_CHARS, Highlighter, language_of
from agent.view.pages import render_page
from agent.view.reading import StoredRun
from agent.view.rows import Row
from agent.view.turns import fold_turns
from agent.view.verdicts import Judged, Record

FILE_BYTES: Final = 128 << 10
FILES_AT_MOST: Final = 40
SUBJECT_WORDS: Final = {"best": "the best submission of the run", "final": "the workspace as it was left"}


def run_page(run: StoredRun, row: Row, *, back: str = "", budget: int = PAGE_CHARS) -> str:
    """The HTML. `back` is a relative link to the collection; `budget` bounds how much code is highlighted, in
    characters, the submission first.
    """
    highlighter = Highlighter(budget=budget)
    folder = _stored(run)
    files = [(name, highlighter.code(text, language=language_of(name))) for name, text in _submission(folder)]
    task = highlighter.code(run.task_text, language="python") if run.task_text else Markup("")
    turns = fold_turns(run.events, highlighter=highlighter)
    record, judged = run.record, row.judged
    return render_page(
        "run.html.j2",
        title=row.task,
        row=row,
        back=back,
        headline=headline(row),
        tone=tone(row),
        judged=judged,
        subject=SUBJECT_WORDS[record.counts] if record and record.counts else "",
        other=_other(record),
        times=times(judged),
        facts=list(_facts(run, row)),
        history=[_history(name, earlier) for name, earlier in run.earlier],
        chart=speedup_chart(turns, judged),
        turns=turns,
        task_code=task,
        files=files,
        files_from=_files_from(run, folder) if files else "",
        version=__version__,
        made_at=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    )


def headline(row: Row) -> str:
    """What came of the run, in one sentence."""
    if row.state == "unfinished":
        return "no verdict yet"
    if row.judged is None:
        return "nothing was judged"
    if row.reward is None:
        scored = "not scored" if row.state == "settled" else "not judged to the end"
        return f"{row.judged.verdict}, {scored}"
    means = reward_meaning(row.reward, eager=row.judged.eager, quiet=row.judged.quiet)
    return f"{row.judged.verdict}, reward {row.reward}: {means}"


def tone(row: Row) -> str:
    """good, fair or bad, for the colour of a verdict; empty where there is none."""
    if row.reward is None:
        return ""
    return "good" if row.reward >= 2 else "fair" if row.reward == 1 else "bad"


def times(judged: Judged | None) -> list[tuple[str, str, Any]]:
    """Rows of (what, median, Speedup or None): the candidate, then its rivals."""
    if judged is None or judged.median_us is None:
        return []
    medians = judged.median_us
    rows: list[tuple[str, str, Any]] = [("candidate", show_us(medians.candidate), None)]
    rows += [("eager", show_us(medians.eager), judged.eager)] if judged.eager else []
    rows += [("torch.compile", show_us(medians.compile), judged.compile)] if judged.compile else []
    return rows


def _facts(run: StoredRun, row: Row) -> Iterator[tuple[str, str]]:
    start = next((event for event in run.events if isinstance(event, RunStart)), None)
    record, judged = run.record, row.judged
    yield "ended", STOP_WORDS[StopReason(row.reason)] if row.reason else "has not ended"
    yield "model", row.model or "unknown"
    if start:
        description = start.sandbox.get("description") or start.sandbox.get("kind") or ""
        yield "sandbox", one_line(str(description), 300)
    yield "turns", f"{row.turns} in {show_duration(row.wall_s)}"
    yield "tokens", f"{show_count(row.tokens)}, {show_cost(row.cost_usd)}"
    yield "rules", _rules(run, judged)
    if judged and judged.device:
        yield "machine", ", ".join(f"{key} {one_line(value, 80)}" for key, value in judged.device)
    if record and record.judge:
        version, tools = record.judge.get("agent_version"), str(record.judge.get("tools_sha256") or "")
        yield "judged again", one_line(f"by cuda-agent {version}, tools {tools[:12]}, replaces {record.replaces}")
    if start:
        yield "recorded by", f"cuda-agent {one_line(start.agent_version, 40)}"
    yield "task sha256", one_line(row.task_sha256, 80)
    yield "run", row.run_id


def _rules(run: StoredRun, judged: Judged | None) -> str:
    """What the verdict was given under, else what the run was configured with."""
    told = run.config.get("judge")
    configured = told if isinstance(told, dict) else {}
    names = [name for name in JudgeConfig.model_fields if name != "reward" and isinstance(configured.get(name), str)]
    rules = judged.rules if judged and judged.rules else ", ".join(f"{name} {configured[name]}" for name in names)
    reward = configured.get("reward")
    return one_line(rules + (f", reward by {reward}" if isinstance(reward, str) else ""), 200)


def _other(record: Record | None) -> tuple[str, Judged] | None:
    """The verdict that does not count, where the two differ."""
    if record is None:
        return None
    found = [(name, judged) for name, judged in record.subjects.items() if name != record.counts]
    same = found and record.judged is not None and found[0][1] == record.judged
    return (SUBJECT_WORDS[found[0][0]], found[0][1]) if found and not same else None


def _history(name: str, record: Record) -> tuple[str, str, Judged | None]:
    reward = "no reward" if record.reward is None else f"reward {record.reward}"
    verdict = record.judged.verdict if record.judged else "nothing judged"
    return name, f"{verdict}, {reward}", record.judged


def _stored(run: StoredRun) -> Path | None:
    """The folder of the submission that counts, else of the other one that is there."""
    folders = [run.folder.best, run.folder.workspace]
    if run.record and run.record.counts == "final":
        folders.reverse()
    return next((f for f in folders if (f / "model_new.py").is_file() and not f.is_symlink()), None)


def _files_from(run: StoredRun, folder: Path | None) -> str:
    counts = run.record.counts if run.record else None
    if folder is None or counts is None or (counts == "best") == (folder == run.folder.best):
        return ""
    missing = "workspace/" if counts == "final" else "best/"
    return f"The verdict is about {missing}, which is not stored with this run; this is {folder.name}/."


def _submission(folder: Path | None) -> Iterator[tuple[str, str]]:
    if folder is None or (folder / "kernels").is_symlink():
        return
    for path in submitted_files(folder)[:FILES_AT_MOST]:
        yield safe(path.relative_to(folder).as_posix()), _text(path)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES).decode("utf-8", errors="backslashreplace")
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"

"""The final table of a run or of a judgement, as rich text: verdict, times, speed-ups, where the result is."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from agent.judging.reports import Verdict
from agent.trajectory.searched import resumable
from agent.ui.console import one_line, safe
from agent.ui.outcome import Outcome
from agent.ui.quantities import show_cost, show_count, show_duration, show_ratio, show_speedup, show_us
from agent.ui.summaries import STOP_WORDS, reward_words, rules_words, verdict_words

_CALL_STYLES = {"faster": "green", "slower": "red", "inconclusive": "yellow"}
_VERDICT_STYLES = {"accepted": "bold green", "rejected": "bold red", "error": "bold yellow"}


def print_outcome(console: Console, outcome: Outcome) -> None:
    """The end of `agent optimize`."""
    console.print()
    print_headline(console, outcome.task.name, outcome.verdict, scored=outcome.reward is not None)
    if outcome.verdict:
        print_times(console, outcome.verdict)
    _facts(console, _outcome_facts(outcome))


def print_verdict(console: Console, title: str, verdict: Verdict) -> None:
    """The end of `agent judge`."""
    print_headline(console, title, verdict)
    print_times(console, verdict)
    facts = [("rules", rules_words(verdict))]
    if device := device_words(verdict):
        facts.append(("machine", device))
    _facts(console, facts)


def print_samples(console: Console, outcomes: list[Outcome]) -> None:
    """The end of `agent optimize --samples N`: one row a try, the best one marked."""
    best = max(outcomes, key=lambda outcome: outcome.rank)
    rows = []
    for outcome in outcomes:
        verdict, progress = outcome.verdict, outcome.progress
        rows.append(
            [
                "★" if outcome is best else "",
                "–" if outcome.reward is None else str(outcome.reward),
                speedup_words(verdict, "eager") if verdict else "–",
                speedup_words(verdict, "compile") if verdict else "–",
                str(progress.turn),
                show_cost(progress.cost_usd),
                outcome.folder.run_id,
            ]
        )
    console.print()
    console.print(Text(f"{len(outcomes)} tries", style="bold"))
    head = ("", "reward", "over eager", "over torch.compile", "turns", "cost", "run")
    print_columns(console, head, rows, right="lrrrrrl")
    _facts(console, [("best", str(best.folder.path))])


def print_winner(console: Console, number: int, outcome: Outcome, verdict: Verdict | None) -> None:
    """The end of a search: the winner's verdict from when it was judged again alone."""
    console.print()
    print_headline(console, f"winner: try {number}, judged again alone", verdict)
    if verdict is not None:
        print_times(console, verdict)
    folder = outcome.folder.best if outcome.subject == "best" else outcome.folder.workspace
    _facts(console, [("result", str(folder)), ("run", str(outcome.folder.path))])


def print_columns(console: Console, head: Sequence[str], rows: Sequence[Sequence[str | Text]], *, right: str) -> None:
    """A table without lines; a column is right-aligned where `right` has an r. Never cut: names must be copyable."""
    cells = [[Text(name, style="dim") for name in head], *([_cell(value) for value in row] for row in rows)]
    widths = [max(row[column].cell_len for row in cells) for column in range(len(head))]
    for row in cells:
        line = Text("  ")
        for cell, width, side in zip(row, widths, right, strict=True):
            gap = " " * (width - cell.cell_len)
            line += Text.assemble(gap, cell, "   ") if side == "r" else Text.assemble(cell, gap, "   ")
        line.rstrip()
        console.print(line, soft_wrap=True)


def _cell(value: str | Text) -> Text:
    return value if isinstance(value, Text) else Text(safe(value))


def print_headline(console: Console, title: str, verdict: Verdict | None, *, scored: bool = True) -> None:
    line = Text(f"{safe(title)}: ", style="bold")
    if verdict is None:
        line.append("nothing was judged", style="bold yellow")
    else:
        line.append(verdict.verdict, style=_VERDICT_STYLES[verdict.verdict])
        line.append(reward_words(verdict, scored=scored))
    console.print(line)
    for reason in verdict.reasons if verdict else ():
        console.print(Text(f"  ✗ {reason.code}: {safe(reason.detail)}", style="red"), soft_wrap=not console.is_terminal)


def print_times(console: Console, verdict: Verdict) -> None:
    """Median times and speed-ups; nothing where nothing was timed."""
    if verdict.median_us is None or verdict.speedup is None:
        return
    rows: list[list[str | Text]] = [["candidate", show_us(verdict.median_us.candidate), "", "", ""]]
    medians = {"eager": verdict.median_us.eager, "compile": verdict.median_us.compile}
    for key, speedup in verdict.speedup.items():
        name = "torch.compile" if key == "compile" else key
        interval = f"{speedup.low:.2f}–{speedup.high:.2f}"
        call = Text(speedup.call, style=_CALL_STYLES[speedup.call])
        rows.append([name, show_us(medians[key]), show_ratio(speedup.ratio), interval, call])
    head = ("one forward", "median", "candidate is", "95 % interval", "")
    print_columns(console, head, rows, right="lrrrl")


def device_words(verdict: Verdict) -> str:
    """`name, key=value, …` of whatever the judge says about the machine, short values only."""
    parts = [str(verdict.device[key]) for key in ("name", "model") if verdict.device.get(key)][:1]
    for key, value in verdict.device.items():
        if key not in ("name", "model") and isinstance(value, str | int | float) and not isinstance(value, bool):
            parts.append(f"{key.replace('_', ' ')} {value}")
    return one_line(", ".join(parts), 200)


def _outcome_facts(outcome: Outcome) -> list[tuple[str, str]]:
    progress = outcome.progress
    facts = []
    if outcome.reason:
        detail = progress.stop.detail if progress.stop else ""
        facts.append(("ended", STOP_WORDS[outcome.reason] + (f" ({one_line(detail)})" if detail else "")))
    if outcome.subject:
        facts.append(("judged", judged_words(outcome)))
    cost = show_cost(progress.cost_usd) if progress.replies else "$0"
    time_s = progress.end.wall_s if progress.end else progress.elapsed_s
    spent = f"{progress.turn} turns, {show_duration(time_s)}, {show_count(progress.tokens)} tokens, {cost}"
    facts.append(("spent", spent))
    facts.append(("run", str(outcome.folder.path)))
    if not outcome.finished or (outcome.reason and outcome.reason.from_outside):
        facts.append(("go on", resume_command(outcome.folder.path)))
    if outcome.finished and (outcome.folder.path / "report.md").is_file():
        facts.append(("report", str(outcome.folder.path / "report.md")))
    return facts


def judged_words(outcome: Outcome) -> str:
    """Which submission the verdict is about, and whether a later judge gave it."""
    words, later = _subject_words(outcome), outcome.later
    if later is None:
        return words
    own = verdict_words(later.own) if later.own else "no verdict"
    return f"{words}; judged again by cuda-agent {later.agent_version}, at its end the run had: {own}"


def _subject_words(outcome: Outcome) -> str:
    best, final = (outcome.progress.verdicts.get(name) for name in ("best", "final"))
    turn = f" (turn {outcome.progress.best_turn})" if outcome.progress.best_turn else ""
    if best and final and best.submission_sha256 == final.submission_sha256:
        return f"the best submission{turn}, which is also the final state"
    if outcome.subject == "final":
        other = f"; best in between: {verdict_words(outcome.best)}" if outcome.best else ""
        return f"the final state{other}"
    other = f"; final state: {verdict_words(outcome.final)}" if outcome.final else ""
    return f"the best submission{turn}{other}"


def _facts(console: Console, facts: list[tuple[str, str]]) -> None:
    for name, value in facts:
        # soft_wrap: a path must stay in one piece to be copied.
        console.print(Text.assemble((f"  {name:<8} ", "dim"), safe(value)), soft_wrap=True)


def speedup_words(verdict: Verdict, key: str) -> str:
    return show_speedup(dict(verdict.speedup or {}).get(key))  # type: ignore[call-overload]


def resume_command(run: Path) -> str:
    """What goes on with a run, or with the search that it is a try of."""
    return f"agent optimize --resume {shell_word(str(resumable(run)))}"


def shell_word(text: str) -> str:
    """Quoted for a POSIX shell where needed."""
    return shlex.quote(text)

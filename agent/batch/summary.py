"""summary.json and summary.md: what a collection has come to, from where its samples stand.

Equal for an interrupted and an uninterrupted job but for times and measured speed-ups: it counts samples, not what
happened on the way to them.
"""

import json
from collections import Counter
from dataclasses import replace
from typing import Any, Final

from agent.batch.board import Board, hardest
from agent.batch.collection import Collection, Plan
from agent.batch.scan import Sample, read_histories, read_refused, scan
from agent.batch.spending import Spending
from agent.trajectory.folder import RunFolder

SHOWN_TASKS: Final = 200


def summarise(plan: Plan, board: Board) -> dict[str, Any]:
    """What summary.json holds."""
    samples = list(board.states.values())
    done = [sample.result for sample in samples if sample.result is not None]
    failed = [sample for sample in samples if sample.state == "failed"]
    spent = board.spending.ended
    states = Counter("owed" if sample.state == "new" else sample.state for sample in samples)
    return {
        "schema_version": 1,
        "agent_version": plan.agent_version,
        "tasks": board.tasks,
        "samples": board.samples,
        "complete": not states["owed"],
        "episodes": {"total": board.total} | {name: states[name] for name in ("done", "owed", "failed", "refused")},
        "rewards": board.rewards,
        "verified": sum(result.reward is not None and result.reward >= 1 for result in done),
        "faster": sum(result.reward is not None and result.reward >= 2 for result in done),
        "reasons": dict(sorted(Counter(result.reason.value for result in done).items())),
        "errors": dict(sorted(Counter(sample.fault for sample in failed).items())),
        "turns": sum(result.turns for result in done),
        "prompt_tokens": spent.prompt_tokens,
        "completion_tokens": spent.completion_tokens,
        "cost_usd": spent.total_cost_usd,
        "refused": [{"id": id, "detail": detail} for id, detail in sorted(board.refused.items())],
        "failed": [_failed(sample) for sample in failed],
        "by_task": _by_task(plan, board),
        "time": {
            "command_s": round(board.elapsed_s, 1),
            "episodes_s": round(sum(result.wall_s for result in done), 1),
            "device_s": round(board.spending.device_s, 1),
        },
    }


def write_summary(collection: Collection, summary: dict[str, Any]) -> None:
    """Both files, each replaced atomically. Raises RecordError."""
    folder = RunFolder(collection.path)
    folder.write_json("summary.json", summary)
    folder.write_text("summary.md", markdown(summary))


def refresh_summary(collection: Collection) -> bool:
    """Write both files again from what is on disk now, the times of the last command kept; false without a collection.

    Raises ConfigError or RecordError where its records are damaged, InUse where a driver is at work: that one writes.
    """
    with collection.lock():
        plan = collection.read_plan()
        if plan is None:
            return False
        board = Board(len(plan.tasks), plan.samples, Spending(), refused=read_refused(collection))
        for line in collection.attempts.read():
            board.spending.count_line(line, collection=collection.path)
        for sample in scan(collection, plan, histories=read_histories(collection), forgiven={}):
            if sample.result is not None:
                board.spending.count_result(sample.result)
            board.place(replace(sample, state="refused", result=None) if sample.key[0] in board.refused else sample)
        write_summary(collection, summarise(plan, board) | _times(collection))
    return True


def _times(collection: Collection) -> dict[str, Any]:
    try:
        return {"time": json.loads((collection.path / "summary.json").read_bytes())["time"]}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def markdown(summary: dict[str, Any]) -> str:
    """The same for a person."""
    episodes, rewards = summary["episodes"], summary["rewards"]
    cost = summary["cost_usd"]
    lines = [
        "# Collection",
        "",
        f"{summary['tasks']} tasks, {summary['samples']} samples each: {episodes['done']} of {episodes['total']} "
        f"episodes done, {episodes['owed']} owed, {episodes['failed']} failed, {episodes['refused']} of refused tasks.",
        "",
        f"Verified: {summary['verified']}. More than 5 % faster than eager at least: {summary['faster']}.",
        "",
        *_table(("reward", "episodes"), rewards.items()),
        *_table(("ended by", "episodes"), summary["reasons"].items()),
        f"Tokens: {summary['prompt_tokens']} in, {summary['completion_tokens']} out; "
        f"cost: {'not known' if cost is None else f'{cost:.2f} US dollars'}; turns: {summary['turns']}.",
        "",
        *_table(("task", "rewards", "best speed-up"), [_task_row(task) for task in summary["by_task"][:SHOWN_TASKS]]),
    ]
    if len(summary["by_task"]) > SHOWN_TASKS:
        lines += [f"… and {len(summary['by_task']) - SHOWN_TASKS} more tasks in summary.json", ""]
    for item in summary["failed"]:
        lines.append(f"- failed: {item['id']}, sample {item['sample']}: {item['error']}: {item['detail']}")
    for item in summary["refused"]:
        lines.append(f"- refused: {item['id']}: {item['detail']}")
    return "\n".join(lines).rstrip() + "\n"


def _by_task(plan: Plan, board: Board) -> list[dict[str, Any]]:
    found: dict[str, list[Sample]] = {entry.id: [] for entry in plan.tasks}
    for (id, _), sample in sorted(board.states.items(), key=lambda item: item[0][1]):
        found[id].append(sample)
    return [
        {
            "id": id,
            "done": sum(sample.state == "done" for sample in samples),
            "rewards": [sample.result.reward if sample.result else None for sample in samples],
            "best_speedup": max(
                (ratio for s in samples if s.result and (ratio := hardest(s.result)) is not None), default=None
            ),
        }
        for id, samples in found.items()
    ]


def _failed(sample: Sample) -> dict[str, Any]:
    return {"id": sample.key[0], "sample": sample.key[1], "error": sample.fault, "detail": sample.detail}


def _task_row(task: dict[str, Any]) -> tuple[str, str, str]:
    rewards = ", ".join("–" if reward is None else str(reward) for reward in task["rewards"])
    best = task["best_speedup"]
    return task["id"].replace("|", "\\|"), rewards, "–" if best is None else f"{best:.2f}×"


def _table(head: tuple[str, ...], rows: Any) -> list[str]:
    cells = [tuple(str(cell) for cell in row) for row in rows]
    lines = (head, ("---",) * len(head), *cells)
    return [*("| " + " | ".join(line) + " |" for line in lines), ""]

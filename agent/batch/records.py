"""The lines of attempts.jsonl and refused.jsonl."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agent.batch.executor import Done
from agent.batch.scan import Key, Lost, speedups, stamp
from agent.trajectory.folder import RunFolder
from agent.trajectory.stored import read_ending

_CODE: Final = re.compile(r"\[([a-z_]+(?:\.[a-z_]+)+)\]")


def attempt_line(done: Done, *, collection: Path) -> dict[str, Any]:
    """What one ended attempt came to; counts are its run's. `stamp` tells whether its verdict is still the same."""
    settled = done.run if done.outcome == "settled" else None
    eager, compiled = speedups(read_ending(RunFolder(settled)) if settled else None)
    return {
        "task": done.job.task.name,
        "sample": done.job.sample,
        "attempt": done.job.attempt,
        "run": _relative(done.run, collection),
        "outcome": done.outcome,
        "error": done.fault.value if done.fault else None,
        "detail": done.detail,
        "reason": done.reason.value if done.reason else None,
        "reward": done.reward,
        "turns": done.turns,
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": done.completion_tokens,
        "cost_usd": done.cost_usd,
        "speedup_eager": eager,
        "speedup_compile": compiled,
        "seconds": done.seconds,
        "device_wait_s": round(done.device_wait_s, 3),
        "device_s": round(done.device_s, 3),
        "stamp": stamp(settled) if settled else None,
    }


def lost_line(key: Key, lost: Lost, *, attempt: int, collection: Path) -> dict[str, Any]:
    """The line that a killed driver did not come to write, from the run's last event."""
    end = lost.end
    return {
        "task": key[0],
        "sample": key[1],
        "attempt": attempt,
        "run": _relative(lost.run, collection),
        "outcome": "failed",
        "error": lost.fault.value,
        "detail": "written by a later command",
        "reason": end.reason.value,
        "reward": end.reward,
        "turns": end.turns,
        "prompt_tokens": end.prompt_tokens,
        "completion_tokens": end.completion_tokens,
        "cost_usd": end.cost_usd,
        "speedup_eager": None,
        "speedup_compile": None,
        "seconds": end.wall_s,
        "device_wait_s": 0.0,
        "device_s": 0.0,
        "stamp": None,
    }


def refusal_line(id: str, detail: str) -> dict[str, Any]:
    """A task that inspection or the judge's controls refuse."""
    code = _CODE.search(detail)
    return {"id": id, "code": code[1] if code else "task", "detail": detail}


def spent_by(line: Mapping[str, Any]) -> tuple[int, int, float | None]:
    """Prompt tokens, completion tokens and US dollars of an attempt's run."""
    return int(line.get("prompt_tokens") or 0), int(line.get("completion_tokens") or 0), line.get("cost_usd")


def _relative(run: Path | None, collection: Path) -> str | None:
    return os.path.relpath(run, collection) if run else None

"""A task as columns of a trainer's dataset, and back: its text travels in the row, so that no path must exist later."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.errors import TaskError
from agent.tasks.task import Task, check_text, text_sha256


def task_columns(task: Task) -> dict[str, str]:
    return {"task_name": task.name, "task_path": str(task.path), "task_text": task.text}


def row_task(row: Mapping[str, Any]) -> Task:
    """The task of a row that has `task_columns`; the text alone is enough. Raises TaskError."""
    text, name = row.get("task_text"), str(row.get("task_name") or "task")
    if not isinstance(text, str):
        raise TaskError("the row has no task", hint="make rows with agent.environments: they have a column task_text")
    check_text(text, label=name)
    path = Path(str(row.get("task_path") or "model.py"))
    return Task(path=path, name=name, text=text, sha256=text_sha256(text))

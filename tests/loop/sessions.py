"""A task, and the first events of a run, for tests that play a session."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent.backends.base import Message
from agent.loop.session import Session
from agent.tasks.task import Task, text_sha256
from agent.trajectory.events import MessageEvent, RunStart

TEXT = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
TASK = Task(path=Path("/x/model.py"), name="tiny", text=TEXT, sha256=text_sha256(TEXT))

MakeSession = Callable[..., Session]


def begin(session: Session) -> None:
    """The two first messages, without a real skill."""
    start: dict[str, Any] = {"run_id": "x", "task_sha256": TASK.sha256, "agent_version": "0", "backend": {}}
    session.log.record(RunStart, sandbox={}, tools=(), **start)
    for role in ("system", "user"):
        session.log.record(MessageEvent, message=Message(role=role, content=f"the {role} message"))

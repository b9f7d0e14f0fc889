"""Finished runs for export tests: recorded ones copied, and runs written event by event with the real writer."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.backends.base import Message, Reply, ToolCall, Usage
from agent.config import Config
from agent.export.episodes import Episode, read_episode
from agent.export.facts import Facts, facts_of
from agent.export.scan import prompt_sha256
from agent.judging.reports import Verdict
from agent.loop.actions import tool_schemas
from agent.loop.judgement import Judgement, verdict_record
from agent.tasks.task import Task, text_sha256
from agent.trajectory.events import (
    MessageEvent,
    ObservationEvent,
    ReplyEvent,
    RunEnd,
    RunStart,
    StopEvent,
    StopReason,
    VerdictEvent,
)
from agent.trajectory.folder import RunFolder
from agent.trajectory.writer import EventWriter

ROOT = Path(__file__).resolve().parents[2]
RECORDED = tuple(sorted(ROOT.glob("examples/*/run")))
TEXT = (
    "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.{op}(x)\n\n\n"
    "def get_inputs():\n    return [torch.rand(8)]\n\n\ndef get_init_inputs():\n    return []\n"
)
SYSTEM = "You make a module faster."


def make_task(name: str = "relu", *, text: str | None = None, path: str = "/data/tasks/model.py") -> Task:
    text = TEXT.format(op=name) if text is None else text
    return Task(path=Path(path), name=name, text=text, sha256=text_sha256(text))


def accepted(*, reward: int = 2, eager: float = 1.5, compile: float | None = None, width: float = 0.1) -> Verdict:
    rivals = {"eager": eager} if compile is None else {"eager": eager, "compile": compile}
    speedup = {
        name: {"ratio": ratio, "low": ratio - width, "high": ratio + width, "call": "faster"}
        for name, ratio in rivals.items()
    }
    return verdict(verdict="accepted", correct=True, reward=reward, speedup=speedup)


def rejected(code: str = "incorrect") -> Verdict:
    return verdict(verdict="rejected", correct=False, reward=-1, reasons=({"code": code, "detail": "differs"},))


def verdict(**fields: Any) -> Verdict:
    common = {"schema_version": 1, "target": "cpu", "policy": "strict", "precision": "strict"}
    return Verdict.model_validate({**common, "device": {"name": "a processor"}, **fields})


def call(name: str, arguments: dict[str, Any] | str | None = None, *, id: str = "") -> ToolCall:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return ToolCall(id=id, name=name, arguments=text)


def said(text: str, *calls: ToolCall, **fields: Any) -> Reply:
    return Reply(text=text, calls=calls, finish_reason="tool_calls" if calls else "stop", **fields)


TURNS = (
    said("I look first.", call("bash", {"command": "cat model.py"})),
    said("Now a kernel.", call("write_file", {"path": "model_new.py", "content": "class ModelNew: ..."})),
    said("", call("verify"), call("profile")),
    said("Done.", call("submit", {"summary": "fused"})),
)


class Writing:
    """Writes one run as the loop does: run_start, opening, replies with their observations, stop, verdicts, run_end."""

    def __init__(self, output: Path, task: Task, *, backend: dict[str, Any] | None = None, opening: str = "") -> None:
        self.folder = RunFolder.create(output, task, Config())
        self.log = EventWriter(self.folder.events)
        self.turn = 0
        self.log.append(
            RunStart,
            run_id=self.folder.run_id,
            task_sha256=task.sha256,
            agent_version="0.1.0",
            backend=backend or {"kind": "openai", "model": "tiny-1"},
            sandbox={"kind": "docker"},
            tools=tool_schemas(),
        )
        self.say("system", SYSTEM)
        self.say("user", opening or f"This is model.py:\n{task.text}")

    def say(self, role: Any, text: str, *, origin: Any = "harness") -> None:
        self.log.append(MessageEvent, message=Message(role=role, content=text), origin=origin)

    def reply(
        self, reply: Reply, *, texts: Sequence[str] = (), statuses: Sequence[Any] = (), error: str | None = None
    ) -> None:
        self.turn += 1
        calls = tuple(
            made if made.id else made.model_copy(update={"id": f"call-{self.turn}-{at}"})
            for at, made in enumerate(reply.calls)
        )
        usage = reply.usage if reply.usage != Usage() else Usage(prompt_tokens=10, completion_tokens=5, cost_usd=0.01)
        reply = reply.model_copy(update={"calls": calls, "usage": usage})
        self.log.append(ReplyEvent, turn=self.turn, reply=reply, format_error=error)
        for at, made in enumerate(calls):
            self.log.append(
                ObservationEvent,
                turn=self.turn,
                call_id=made.id,
                name=made.name,
                text=texts[at] if at < len(texts) else f"result of {made.name}",
                status=statuses[at] if at < len(statuses) else "ok",
            )

    def end(
        self, best: Verdict | None, *, final: Verdict | None = None, reason: StopReason = StopReason.SUBMITTED
    ) -> Path:
        """Stop, verdicts and run_end; `final` is `best` where it is not given."""
        self.log.append(StopEvent, reason=reason)
        final = final or best
        subjects: dict[Any, Verdict] = {}
        if best is not None and final is not None:
            subjects = {"best": best, "final": final}
        for subject, found in subjects.items():
            self.log.append(
                VerdictEvent, subject=subject, submission_sha256="0" * 64, verdict=found.model_dump(mode="json")
            )
        reward = best.reward if best else None
        self.log.append(
            RunEnd,
            reason=reason,
            reward=reward,
            turns=self.turn,
            prompt_tokens=10 * self.turn,
            completion_tokens=5 * self.turn,
            cost_usd=0.01 * self.turn,
            wall_s=1.0,
        )
        self.log.close()
        self.folder.write_json("verdict.json", verdict_record(reason, reward, Judgement(subjects)))
        return self.folder.path


def write_run(
    output: Path,
    best: Verdict | None = None,
    *,
    task: Task | None = None,
    turns: Sequence[Reply] = TURNS,
    final: Verdict | None = None,
    reason: StopReason = StopReason.SUBMITTED,
    **fields: Any,
) -> Path:
    """A whole run; its verdict is an accepted one where none is given."""
    writing = Writing(output, task or make_task(), **fields)
    for reply in turns:
        writing.reply(reply)
    return writing.end(best or accepted(), final=final, reason=reason)


def copy_example(source: Path, folder: Path, *, run_id: str = "") -> Path:
    """A recorded run under another name (and id, where one is given)."""
    shutil.copytree(source, folder)
    if run_id:
        first, rest = (folder / "events.jsonl").read_bytes().split(b"\n", 1)
        start = json.loads(first) | {"run_id": run_id}
        (folder / "events.jsonl").write_bytes(json.dumps(start).encode() + b"\n" + rest)
    return folder


def episode_at(path: Path) -> Episode:
    return read_episode(RunFolder(path))


def facts_at(path: Path) -> Facts:
    episode = episode_at(path)
    return facts_of(episode, prompt_sha256=prompt_sha256(episode))


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]

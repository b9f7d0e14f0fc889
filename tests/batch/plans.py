"""Tasks, plans and runs for tests of collections; runs are made with the real folder and writer."""

import json
from pathlib import Path
from typing import Any

from agent.batch.collection import Collection, Plan, make_plan
from agent.config import Config, load_config
from agent.judging.reports import Verdict
from agent.loop.judgement import Judgement, verdict_record
from agent.tasks.task import Task, text_sha256
from agent.trajectory.events import RunEnd, RunStart, StopEvent, StopReason
from agent.trajectory.folder import RunFolder
from agent.trajectory.writer import EventWriter

TEXT = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2.0 + 1.0


def get_inputs():
    return [torch.rand(64, 64)]


def get_init_inputs():
    return []
"""
CONFIG = load_config(settings=["sandbox.kind=bubblewrap", "judge.target=cpu"])
HEAD = "---\nauthor: hand-written\ntarget: cpu\ntask: model.py\n---\n"
REJECTED: dict[str, Any] = {
    "schema_version": 1,
    "verdict": "rejected",
    "correct": False,
    "reward": -1,
    "target": "cpu",
    "policy": "strict",
    "precision": "strict",
    "reasons": [{"code": "load.submission", "detail": "there is no model_new.py"}],
}


def make_task(name: str, text: str = TEXT) -> Task:
    return Task(path=Path(f"/x/{name}/model.py"), name=name, text=text, sha256=text_sha256(text))


def make_collection(
    path: Path, *names: str, samples: int = 1, config: Config = CONFIG
) -> tuple[Collection, Plan, list[Task]]:
    tasks = [make_task(name) for name in names]
    collection = Collection.at(path)
    collection.path.mkdir(parents=True, exist_ok=True)
    return collection, collection.settle_plan(make_plan(tasks, settings=config, samples=samples)), tasks


def store_run(
    collection: Collection,
    plan: Plan,
    *,
    task: int = 0,
    sample: int = 0,
    reason: StopReason = StopReason.SCRIPT_END,
    verdict: dict[str, Any] | None = REJECTED,
    errors: tuple[str, ...] = (),
    with_verdict: bool = True,
    end: bool = True,
    tokens: int = 10,
    cost_usd: float | None = 0.5,
) -> RunFolder:
    """One run of a sample as the loop leaves it, whole or cut off somewhere."""
    entry = plan.tasks[task]
    text = make_task(entry.id)
    folder = RunFolder.create(collection.sample_folder(entry, sample), text, plan.settings)
    final = Verdict.model_validate(verdict) if verdict else None
    reward = final.reward if final and not errors and not reason.infrastructure else None
    with EventWriter(folder.events) as writer:
        writer.append(
            RunStart,
            run_id=folder.run_id,
            task_sha256=entry.sha256,
            agent_version="0",
            backend={},
            sandbox={},
            tools=(),
        )
        if with_verdict or end:
            writer.append(StopEvent, reason=reason)
        if with_verdict:
            judgement = Judgement({"final": final} if final else {}, list(errors))
            folder.write_json("verdict.json", verdict_record(reason, reward, judgement))
        if end:
            writer.append(
                RunEnd,
                reason=reason,
                reward=reward,
                turns=2,
                prompt_tokens=tokens,
                completion_tokens=tokens,
                cost_usd=cost_usd,
                wall_s=3.0,
            )
    return folder


def write_tasks(path: Path, *names: str, text: str = TEXT) -> Path:
    """A JSONL file with one text under several ids, so that the cache is warmed once."""
    path.write_text("".join(json.dumps({"id": name, "code": text}) + "\n" for name in names), encoding="utf-8")
    return path


def write_script(path: Path, *commands: str) -> Path:
    """A script with one bash command per turn."""
    turns = [f"\n## Turn {n}\n\n```action bash\n{command}\n```\n" for n, command in enumerate(commands, 1)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + "".join(turns), encoding="utf-8")
    return path

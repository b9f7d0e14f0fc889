"""Warm-up data: a collection played by the built-in policy, in real sandboxes with the real judge, and its export."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Collect
from plans import TEXT

from agent.cli import main
from agent.trajectory.events import ActionEvent, StopEvent
from agent.trajectory.reader import read_events
from agent.trajectory.stored import find_runs

pytestmark = [pytest.mark.bubblewrap, pytest.mark.torch]


def runs(collection: Path) -> Iterator[tuple[str, Path]]:
    for run in sorted(find_runs([collection]), key=lambda run: (run.path / "verdict.json").exists()):
        yield json.loads((run.path / "task.json").read_text())["id"], run.path


def test_a_collection_without_a_language_model_becomes_training_data(collect: Collect, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    for name, text in (("scale", TEXT), ("scan", TEXT.replace("x * 2.0 + 1.0", "torch.cumsum(x, dim=-1)"))):
        (tasks / name).mkdir(parents=True)
        (tasks / name / "model.py").write_text(text)
    out = tmp_path / "collection"
    # Two turns: traced, and written. What is there then is judged.
    collect(tasks, "limits.turns=2", workers=2, flags={"backend.name": "builtin"}, output=out)
    found = dict(runs(out))
    events = {name: list(read_events(path / "events.jsonl")) for name, path in found.items()}
    stops = {name: [e.detail for e in events[name] if isinstance(e, StopEvent)] for name in found}
    assert "no kernel for aten.cumsum.default" in stops["scan"][0]
    actions = [event.name for event in events["scale"] if isinstance(event, ActionEvent)]
    assert actions == ["bash", "write_file", "write_file", "write_file", "compile"]
    verdict = json.loads((found["scale"] / "verdict.json").read_text())
    assert (verdict["final"] or {}).get("verdict") == "accepted", verdict
    data = tmp_path / "data"
    assert main(["export", str(out), "--format", "trl-sft", "--filter", "reward >= 1", "-o", str(data)]) == 0
    (row,) = [json.loads(line) for line in (data / "train.jsonl").read_text().splitlines()]
    assert "aten.mul" in json.dumps(row) and "REGISTER_LAUNCHER" in json.dumps(row)

"""Runs to show: recorded ones, copies of them as a collection has them, and one whose every text is hostile."""

import json
import shutil
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECORDED = sorted(ROOT.glob("examples/*/run"))
PAYLOAD = (
    "</script></style></pre></textarea>--><script>document.title='pwned'</script>"
    "<img src=x onerror=\"document.title='pwned'\">"
    "<svg onload=document.title='pwned'>\"'` onmouseover=alert(1) {{7*7}} javascript:alert(1) \x1b[31m\u202e\ud800"
)
# What a model or a tool cannot choose, because no event would be valid with another value.
FIXED = frozenset(
    {"type", "role", "status", "reason", "origin", "finish_reason", "subject", "call", "verdict", "counts", "target"}
    | {"policy", "precision", "severity", "tool", "module", "name"}
)


def collection(folder: Path, *, tasks: int = 3, samples: int = 2) -> Path:
    """As `agent collect` has it; the first sample of the first task has two attempts, the last run no verdict."""
    plan = []
    for number in range(tasks):
        source = RECORDED[number % len(RECORDED)]
        name, place = f"{source.parent.name}-{number}", f"tasks/task-{number}-{number:08x}"
        plan.append({"id": name, "sha256": "0" * 64, "folder": place, "source": "made"})
        for sample in range(samples):
            copy_run(source, folder / place / str(sample) / f"2026-11-30T10{number}{sample}-{name}", name)
    again = next((folder / "tasks").glob("task-0-*/0/*"))
    copy_run(again, again.with_name("2026-11-30T0900-earlier"), plan[0]["id"], began=-1000.0)
    (sorted((folder / "tasks").glob("*/*/*"))[-1] / "verdict.json").unlink()
    record = {"schema_version": 1, "agent_version": "0.1.0", "settings": {}, "samples": samples, "tasks": plan}
    (folder / "collection.json").write_text(json.dumps(record))
    refused = {"id": f"no-model {PAYLOAD}", "code": "task.invalid", "detail": f"has no class Model {PAYLOAD}"}
    (folder / "refused.jsonl").write_text(json.dumps(refused) + "\nno json\n")
    return folder


def copy_run(source: Path, run: Path, name: str, *, began: float = 0.0) -> Path:
    shutil.copytree(source, run)
    change(run / "task.json", lambda task: task | {"id": name})
    write_events(run, [event | {"t": event["t"] + began} for event in read_events(run)])
    return run


def hostile_run(run: Path) -> Path:
    """Every text that a model, a tool or a file name can choose ends in markup that would script a careless page."""
    shutil.copytree(RECORDED[0], run)
    for name in ("task.json", "verdict.json"):
        change(run / name, poisoned)
    events = [poisoned(event) for event in read_events(run)]
    for event in events[4:6]:  # the first action and its observation; the others keep names that are looked at
        event["name"] += PAYLOAD
    write_events(run, events)
    text = PAYLOAD.replace("\ud800", "")
    (run / "best" / "kernels" / "x<img src=x onerror=alert(1)>\"'.cpp").write_text(text)
    for path in (run / "best").rglob("*.cpp"):
        path.write_text(f"{path.read_text()}// {text}\n")
    return run


def poisoned(value: Any, key: str = "") -> Any:
    match value:
        case str():
            return value if key in FIXED else value + PAYLOAD
        case dict():
            return {name: poisoned(item, name) for name, item in value.items()}
        case list():
            return [poisoned(item, key) for item in value]
    return value


def read_events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_bytes().splitlines()]


def write_events(run: Path, events: list[dict[str, Any]]) -> None:
    lines = [json.dumps(event | {"seq": seq}) + "\n" for seq, event in enumerate(events)]
    (run / "events.jsonl").write_text("".join(lines))


def change(path: Path, how: Any) -> None:
    path.write_text(json.dumps(how(json.loads(path.read_bytes()))))

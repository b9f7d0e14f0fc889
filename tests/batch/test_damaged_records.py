"""Whatever stands in the files of a collection: read as it is meant, or one clear error; never a crash."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from plans import make_collection, store_run

from agent.batch.collection import Collection, Plan
from agent.batch.records import refusal_line
from agent.batch.scan import Sample, read_end, read_histories, read_refused, scan
from agent.batch.search_folder import SearchFolder
from agent.batch.summary import refresh_summary
from agent.errors import AgentError, RecordError
from agent.tasks.task import Task
from agent.trajectory.folder import RunFolder
from agent.trajectory.reader import read_events
from agent.trajectory.stored import read_ending

ATTEMPT: Final[dict[str, Any]] = {
    "task": "a",
    "sample": 0,
    "attempt": 0,
    "run": "tasks/x/0/y",
    "outcome": "settled",
    "error": None,
    "detail": "",
    "reason": "script_end",
    "reward": -1,
    "turns": 2,
    "prompt_tokens": 10,
    "completion_tokens": 10,
    "cost_usd": 0.5,
    "speedup_eager": None,
    "speedup_compile": None,
    "seconds": 3.0,
    "device_wait_s": 0.0,
    "device_s": 0.0,
    "stamp": "",
}
NUMBERS: Final = (-1, 1.5, True, float("nan"), 10**400)
JUNK: Final[tuple[Any, ...]] = (*NUMBERS, None, [], {}, "x", [[1]], {"a": {}}, "\ud800", [None])
DEEP: Final = 10**5
RAW: Final = (b"", b"\n", bytes(100) + b"\n", bytes(range(256)) + b"\n", b"[" * DEEP + b"\n", b'{"a":' * DEEP + b"\n")
DIGITS: Final = b'{"reward":' + b"1" * 5000 + b"}\n"


def variants(record: dict[str, Any]) -> Iterator[Any]:
    yield from JUNK
    for key, value in record.items():
        yield {name: other for name, other in record.items() if name != key}
        yield from (record | {key: junk} for junk in JUNK)
        if isinstance(value, dict):
            yield from (record | {key: inner} for inner in variants(value))


def damaged(record: dict[str, Any]) -> Iterator[bytes]:
    yield from (*RAW, DIGITS)
    yield from (json.dumps(variant).encode() + b"\n" for variant in variants(record))


def survives(read: Callable[[], object]) -> bool:
    try:
        read()
    except AgentError as error:
        assert "\n" not in error.message
        return False
    return True


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Collection, Plan, RunFolder]:
    collection, plan, _ = make_collection(tmp_path / "c", "a")
    return collection, plan, store_run(collection, plan)


def samples(collection: Collection, plan: Plan) -> list[Sample]:
    return list(scan(collection, plan, histories=read_histories(collection), forgiven={}))


def test_attempts(stored: tuple[Collection, Plan, RunFolder]) -> None:
    collection, plan, run = stored
    told = ATTEMPT | {"run": str(run.path.relative_to(collection.path)), "stamp": "1:2"}
    read = []
    for body in damaged(told):
        collection.attempts.path.write_bytes(body)
        read.append(survives(lambda: samples(collection, plan)))
    assert set(read) == {True, False}
    collection.attempts.path.write_bytes(b'{"task": "a", "sample": "x", "outcome": "failed"}\n')
    with pytest.raises(RecordError, match=r"attempts.jsonl, line 1 is damaged: sample: .*take that line out"):
        samples(collection, plan)


def test_a_line_that_an_older_version_wrote_shorter_is_looked_up(stored: tuple[Collection, Plan, RunFolder]) -> None:
    collection, plan, run = stored
    about = (run.path / "verdict.json").stat()
    whole = ATTEMPT | {
        "run": str(run.path.relative_to(collection.path)),
        "stamp": f"{about.st_mtime_ns}:{about.st_size}",
    }
    for name in set(whole) - {"task", "sample", "outcome"}:
        line = {key: value for key, value in whole.items() if key != name}
        collection.attempts.path.write_text(json.dumps(line) + "\n")
        (sample,) = samples(collection, plan)
        assert sample.state == "done" and sample.result is not None and sample.result.turns == 2
        refresh_summary(collection)


def test_refusals(stored: tuple[Collection, Plan, RunFolder]) -> None:
    collection, _, _ = stored
    for body in damaged(refusal_line("a", "it is none [task.none]")):
        collection.refusals.path.write_bytes(body)
        survives(lambda: read_refused(collection))


def test_a_verdict_that_is_none_is_owed(stored: tuple[Collection, Plan, RunFolder]) -> None:
    collection, plan, run = stored
    path = run.path / "verdict.json"
    record = json.loads(path.read_bytes())
    record["final"] |= {"reasons": [{"code": "x", "detail": "y"}], "speedup": {"eager": {"ratio": 2.0}}}
    for body in damaged(record):
        path.write_bytes(body)
        assert samples(collection, plan)[0].state in ("done", "owed")
    for reasons in (["x"], [None], {"a": 1}, 5):
        path.write_text(json.dumps(record | {"final": record["final"] | {"reasons": reasons}}))
        assert read_ending(run) is None
    path.write_text(json.dumps(record))
    ending = read_ending(run)
    assert ending is not None and ending.settled


def test_logs(stored: tuple[Collection, Plan, RunFolder]) -> None:
    _, _, run = stored
    log = run.events.read_bytes().splitlines(keepends=True)
    for body in damaged(json.loads(log[-1])):
        run.events.write_bytes(b"".join(log[:-1]) + body)
        read_end(run.events)
        run.events.write_bytes(body + b"".join(log))
        survives(lambda: list(read_events(run.events)))


@pytest.mark.parametrize("name", ["task.json", "config.json"])
def test_what_a_run_was_begun_with(stored: tuple[Collection, Plan, RunFolder], name: str) -> None:
    _, _, run = stored
    for body in (*RAW, DIGITS, *(json.dumps(junk).encode() for junk in JUNK)):
        (run.path / name).write_bytes(body)
        assert not survives(run.task if name == "task.json" else run.config) or body == b"{}"


def test_plans_and_searches(stored: tuple[Collection, Plan, RunFolder], tmp_path: Path) -> None:
    collection, plan, run = stored
    whole = json.loads((collection.path / "collection.json").read_bytes())
    for body in (*RAW, DIGITS, *(json.dumps(whole | {key: junk}).encode() for key in whole for junk in JUNK)):
        (collection.path / "collection.json").write_bytes(body)
        survives(collection.read_plan)
    task: Task = run.task()
    search = SearchFolder.create(
        task,
        plan.settings.model_copy(
            update={"run": plan.settings.run.model_copy(update={"output": str(tmp_path / "runs")})}
        ),
    )
    record = json.loads((search.path / "search.json").read_bytes())
    for body in (*RAW, DIGITS, *(json.dumps(record | {key: junk}).encode() for key in record for junk in JUNK)):
        (search.path / "search.json").write_bytes(body)
        survives(lambda: SearchFolder.open(search.path))

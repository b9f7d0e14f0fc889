"""kill -9 at any event, again and again, then going on: the run comes to the same end as one that was left alone."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sessions import MakeSession, begin
from stand_ins import Turns, bash, call, reply

from agent.config import Config, load_config
from agent.errors import ConfigError
from agent.loop.control import SilentListener
from agent.loop.episode import run_episode
from agent.loop.play import play
from agent.loop.session import Session
from agent.loop.steps import recover, redo
from agent.sandbox.open import check_bubblewrap
from agent.tasks.task import load_task
from agent.trajectory.events import (
    ActionEvent,
    Event,
    ObservationEvent,
    ReplyEvent,
    Resumed,
    RunEnd,
    StopEvent,
    StopReason,
    VerdictEvent,
)
from agent.trajectory.folder import RunFolder
from agent.trajectory.reader import read_events

HERE = Path(__file__).parent
TURNS = """\
---
author: hand-written
target: cpu
task: model.py
---
## Turn 1
```action bash
echo one
```
## Turn 2
```action write_file path=kernels/notes.txt
first
```
```action edit_file path=kernels/notes.txt
<<<<<<< old
first
=======
second
>>>>>>> new
```
## Turn 3
```action edit_file path=nowhere
<<<<<<< old
a
=======
b
>>>>>>> new
```
## Turn 4
```action compile
```
## Turn 5
```action submit
```
## Turn 6
```action submit
```
"""


def process(folder: RunFolder, script: Path, after: int) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(HERE / "die.py"), str(folder.path), str(script), str(after)]
    return subprocess.run(argv, capture_output=True, text=True, env=environment(), check=False, timeout=300)


def environment() -> dict[str, str]:
    path = os.pathsep.join((str(HERE.parent.parent), os.environ.get("PYTHONPATH", "")))
    return {**os.environ, "PYTHONPATH": path}


def make_run(tmp_path: Path) -> tuple[RunFolder, Path]:
    script = tmp_path / "turns.md"
    script.write_text(TURNS)
    config = load_config(settings=["sandbox.kind=bubblewrap", "judge.target=cpu"])
    return RunFolder.create(tmp_path / "runs", load_task(HERE / "gelu" / "model.py"), config), script


def essence(folder: RunFolder) -> list[tuple[object, ...]]:
    """What an uninterrupted and an interrupted run must agree on."""
    found: list[tuple[object, ...]] = []
    for event in read_events(folder.events):
        match event:
            case ReplyEvent():
                found.append(("reply", event.turn, event.reply.text))
            case ObservationEvent(name="bash"):
                found.append(("observation", event.call_id))  # what was under way is not simply repeated
            case ObservationEvent():
                found.append(("observation", event.call_id, event.status, event.text.split(" in ")[0]))
            case StopEvent() | RunEnd():
                found.append((event.type, event.reason))
            case VerdictEvent():
                found.append(("verdict", event.subject, event.verdict["verdict"], event.submission_sha256))
    return found


@pytest.mark.bubblewrap
@pytest.mark.torch
def test_killed_after_every_few_events_it_comes_to_the_same_end(tmp_path: Path) -> None:
    if not check_bubblewrap(Config().sandbox).usable:
        pytest.skip("bubblewrap cannot be used here")
    whole, script = make_run(tmp_path)
    done = process(whole, script, 0)
    assert done.returncode == 0, done.stderr
    killed, _ = make_run(tmp_path)
    deaths = 0
    while (cut := process(killed, script, (1, 4, 3, 5)[deaths % 4])).returncode == -signal.SIGKILL:
        deaths += 1
        assert deaths < 60
    assert cut.returncode == 0, cut.stderr
    assert deaths > 5
    assert cut.stdout == done.stdout == "submitted -1 6\n"
    assert essence(killed) == essence(whole)
    text = (killed.workspace / "kernels/notes.txt").read_text()
    assert text == "second\n"
    events = list(read_events(killed.events))
    # Nothing goes on after a death that came behind the last event.
    assert deaths - sum(isinstance(event, Resumed) for event in events) in (0, 1)
    ids = [event.call_id for event in events if isinstance(event, ObservationEvent)]
    assert len(set(ids)) == len(ids) == 7
    begun = [event.call_id for event in events if isinstance(event, ActionEvent)]
    assert len(set(begun)) == len(begun)


def wait_for(path: Path, text: str) -> None:
    deadline = time.monotonic() + 60
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.bubblewrap
@pytest.mark.torch
def test_killed_from_outside_during_a_command(tmp_path: Path) -> None:
    if not check_bubblewrap(Config().sandbox).usable:
        pytest.skip("bubblewrap cannot be used here")
    folder, script = make_run(tmp_path)
    script.write_text(TURNS.replace("echo one", "echo begun > begun; sleep 100"))
    argv = [sys.executable, str(HERE / "die.py"), str(folder.path), str(script), "0"]
    child = subprocess.Popen(argv, env=environment())
    wait_for(folder.workspace / "begun", "begun")
    child.kill()
    child.wait()
    done = process(folder, script, 0)
    assert done.stdout == "submitted -1 6\n", done.stderr
    first = next(event for event in read_events(folder.events) if isinstance(event, ObservationEvent))
    assert (first.name, first.status) == ("bash", "not_executed")
    assert "interrupted while this action ran" in first.text
    (resumed,) = (event for event in read_events(folder.events) if isinstance(event, Resumed))
    assert resumed.pending == (first.call_id,)


def events_until(session_folder: RunFolder, count: int) -> None:
    """Leave the first `count` events, as if the process had died there."""
    lines = session_folder.events.read_bytes().splitlines(keepends=True)
    session_folder.events.write_bytes(b"".join(lines[:count]) + b'{"seq": 99, "torn')


def test_every_prefix_of_a_log_comes_to_the_same_end(make_session: MakeSession, tmp_path: Path) -> None:
    """The same without processes: each prefix, with the workspace as it was at the end, a torn line behind it."""
    turns = [
        reply(call("write_file", path="a", content="1"), call("bash", command="cat a"), call("python")),
        reply(text="hm", finish_reason="stop"),
        reply(call("bash", command="echo cut"), finish_reason="length"),
        bash("cat a"),
        reply(call("submit"), call("submit")),
    ]
    session = make_session(Turns(*turns))
    play(session, lambda: begin(session))
    expected = kinds(list(read_events(session.folder.events)))
    total = len(list(read_events(session.folder.events)))
    whole = session.folder.events.read_bytes()
    for count in range(3, total):
        session.folder.events.write_bytes(whole)
        events_until(session.folder, count)
        again = make_session(Turns(*turns), folder=session.folder)

        def going_on(again: object = again) -> None:
            resume(again)  # type: ignore[arg-type]

        play(again, going_on)
        assert kinds(list(read_events(session.folder.events))) == expected, count


def resume(session: Session) -> None:
    recovery = recover(session)
    session.log.record(Resumed)
    if recovery is not None:
        redo(session, recovery)


def kinds(events: list[Event]) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for event in events:
        if isinstance(event, ObservationEvent):
            status = "ok" if event.name == "bash" and event.status == "not_executed" else event.status
            found.append(("observation", event.call_id, status if event.name != "bash" else ""))
        elif not isinstance(event, Resumed):
            found.append((event.type, getattr(event, "turn", None), getattr(event, "reason", None)))
    return found


@pytest.mark.parametrize("harm", ["missing", "garbage", "behind", "empty"])
def test_a_checkpoint_that_is_gone_or_behind_costs_nothing(make_session: MakeSession, harm: str) -> None:
    turns = Turns(*[bash(f"echo {i}") for i in range(6)])
    session = make_session(turns, "limits.turns=3")
    play(session, lambda: begin(session))
    events_until(session.folder, len(list(read_events(session.folder.events))) - 1)
    graph = session.folder.graph
    for extra in (Path(f"{graph}-wal"), Path(f"{graph}-shm")):
        extra.unlink(missing_ok=True)
    if harm == "missing":
        graph.unlink()
    elif harm == "garbage":
        graph.write_bytes(b"not a database" * 100)
    elif harm == "empty":
        graph.write_bytes(b"")
    else:
        with sqlite3.connect(graph) as database:
            database.execute("DELETE FROM checkpoints WHERE rowid > 3")
        database.close()
    again = make_session(turns, "limits.turns=5", folder=session.folder)
    stop, _ = play(again, lambda: resume(again))
    assert stop is not None and stop.reason is StopReason.TURNS
    assert again.ledger.turns == 5
    assert len([e for e in read_events(session.folder.events) if isinstance(e, ObservationEvent)]) == 5


def test_the_time_of_earlier_sessions_counts(make_session: MakeSession) -> None:
    session = make_session(Turns(bash("sleep 1"), bash("echo")))
    play(session, lambda: begin(session))
    again = make_session(Turns(), folder=session.folder)
    assert 1.0 <= again.clock.elapsed_s() < 5.0


def test_a_run_of_another_task_is_not_gone_on_with(make_session: MakeSession) -> None:
    session = make_session(Turns(bash("echo 1")))
    begin(session)
    other = replace(session.bench.task, sha256="0" * 64)
    with pytest.raises(ConfigError, match="another task"):
        run_episode(session.config, other, session.folder, backend=session.backend, listener=SilentListener())
    assert session.folder.events.is_file()

"""The event log loses nothing that was recorded, whatever ends the process or fills the disk."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.backends.base import Message, Reply, ToolCall
from agent.errors import RecordError
from agent.trajectory.events import Event, MessageEvent, ReplyEvent, Resumed, StopEvent, StopReason
from agent.trajectory.reader import read_events
from agent.trajectory.writer import EventWriter

SURROGATES = "caf\u00e9 \ud83d \udc80 \U0001f600"


def say(writer: EventWriter, text: str) -> MessageEvent:
    return writer.append(MessageEvent, message=Message(role="user", content=text))


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    told: list[Event] = []
    reply = Reply(
        text=SURROGATES,
        calls=(ToolCall(id="a", name="bash", arguments='{"command": "\ud83d"'),),
        raw={"x": [1, {"y": SURROGATES}]},
        completion_token_ids=(1, 2),
        logprobs=(-0.5, -1.25),
    )
    with EventWriter(tmp_path / "events.jsonl", on_event=told.append) as writer:
        writer.append(ReplyEvent, turn=1, reply=reply)
        say(writer, SURROGATES)
        writer.append(StopEvent, reason=StopReason.SUBMITTED)
    events = list(read_events(tmp_path / "events.jsonl"))
    assert events == told
    assert [event.seq for event in events] == [0, 1, 2]
    assert isinstance(events[0], ReplyEvent) and events[0].reply == reply
    assert (tmp_path / "events.jsonl").read_bytes().isascii()


def test_every_event_is_on_disk_before_the_listener_hears_of_it(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    counts: list[int] = []
    with EventWriter(path, on_event=lambda event: counts.append(len(path.read_bytes().splitlines()))) as writer:
        for number in range(3):
            say(writer, str(number))
    assert counts == [1, 2, 3]


@pytest.mark.parametrize("torn", [b'{"seq":2,"t":1', b"\x00\x00\x00", b"garbage\n", b'{"seq":2}\n'])
def test_a_torn_tail_is_dropped_and_cut_off(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "events.jsonl"
    with EventWriter(path) as writer:
        say(writer, "one")
        say(writer, "two")
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert [event.seq for event in read_events(path)] == [0, 1]
    with EventWriter(path) as writer:
        assert path.read_bytes() == whole
        assert writer.append(Resumed).seq == 2
    assert [event.seq for event in read_events(path)] == [0, 1, 2]


def test_every_cut_of_a_log_can_be_continued(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventWriter(path) as writer:
        for number in range(3):
            say(writer, SURROGATES + str(number))
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        kept = whole[:size].count(b"\n")
        with EventWriter(path) as writer:
            say(writer, "after")
        assert [event.seq for event in read_events(path)] == list(range(kept + 1))


def test_damage_in_the_middle_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventWriter(path) as writer:
        for number in range(3):
            say(writer, str(number))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"{}\n" + lines[2])
    with pytest.raises(RecordError, match="line 2 is damaged"):
        list(read_events(path))
    path.write_bytes(lines[0] + lines[2])
    with pytest.raises(RecordError, match="seq 2 instead of 1"):
        list(read_events(path))


def test_a_missing_log_has_no_events(tmp_path: Path) -> None:
    assert list(read_events(tmp_path / "events.jsonl")) == []


def test_reading_holds_one_event_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventWriter(path) as writer:
        for _ in range(60):
            say(writer, "x" * 1_000_000)
    code = (
        "import resource, sys; from pathlib import Path; from agent.trajectory.reader import read_events\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "count = sum(1 for _ in read_events(Path(sys.argv[1])))\n"
        "print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    count, grown_kb = map(int, done.stdout.split())
    assert count == 60
    assert grown_kb < 30_000


def test_a_killed_writer_leaves_every_announced_event(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    code = (
        "import sys; from pathlib import Path; from agent.backends.base import Message\n"
        "from agent.trajectory.events import MessageEvent; from agent.trajectory.writer import EventWriter\n"
        "writer = EventWriter(Path(sys.argv[1]), on_event=lambda event: print(event.seq, flush=True))\n"
        "while True: writer.append(MessageEvent, message=Message(role='user', content='x' * 5000))"
    )
    process = subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    announced = [int(process.stdout.readline()) for _ in range(40)][-1]
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert len(list(read_events(path))) > announced


def in_child(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


FILL = """
import sys
from pathlib import Path
from agent.backends.base import Message
from agent.errors import RecordError
from agent.trajectory.events import MessageEvent
from agent.trajectory.reader import read_events
from agent.trajectory.writer import EventWriter
path = Path(sys.argv[1])
writer = EventWriter(path)
try:
    for number in range(10_000):
        writer.append(MessageEvent, message=Message(role="user", content="x" * 3000))
except RecordError as error:
    kept = [event.seq for event in read_events(path)]
    assert kept == list(range(number)) and number > 5, (kept, number)
    assert path.read_bytes().endswith(b"\\n")
    print(error.full, error)
"""


def test_a_size_limit_stops_with_everything_before_intact(tmp_path: Path) -> None:
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n{FILL}"
    assert in_child(limit, str(tmp_path / "events.jsonl")).startswith("True cannot record in")
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 100_000


@pytest.mark.bubblewrap
def test_a_full_disk_stops_with_everything_before_intact(tmp_path: Path) -> None:
    import shutil

    bwrap = shutil.which("bwrap")
    if bwrap is None:
        pytest.skip("no bwrap")
    small, fill = tmp_path / "small", tmp_path / "fill.py"
    small.mkdir()
    fill.write_text(f"import sys; sys.path.insert(0, {os.getcwd()!r})\n{FILL}")
    inside = [sys.executable, str(fill), str(small / "events.jsonl")]
    argv = [bwrap, "--ro-bind", "/", "/", "--dev", "/dev", "--size", "200000", "--tmpfs", str(small), *inside]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "True" in done.stdout and "the disk is full" in done.stdout


def test_a_folder_that_is_gone_is_a_record_error(tmp_path: Path) -> None:
    with pytest.raises(RecordError) as caught:
        EventWriter(tmp_path / "gone" / "events.jsonl")
    assert not caught.value.full
    assert os.strerror(errno.ENOENT) in str(caught.value)


def test_lines_are_json_that_anything_can_read(tmp_path: Path) -> None:
    with EventWriter(tmp_path / "events.jsonl") as writer:
        say(writer, "line\u2028separator\nand newline")
    (line,) = (tmp_path / "events.jsonl").read_text().splitlines()
    assert json.loads(line)["message"]["content"] == "line\u2028separator\nand newline"

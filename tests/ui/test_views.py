"""Plain lines, JSON events, and outputs that nobody reads any more."""

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import terminal
from recorded import Recorder, accepted, build_report, rejected, whole_run

from agent.loop.control import Status
from agent.trajectory.events import StopReason
from agent.ui.progress import Progress
from agent.ui.views import Heading, JsonView, PlainView

HEADING = Heading("bias-relu", (("task", "model.py"),), ("by hand",), ("no sandbox",))


def plain(run: Recorder, *, diff: bool = False) -> list[str]:
    out = io.StringIO()
    view = PlainView(out, show_diff=diff)
    view.begin(HEADING, Progress())
    for event in run.events:
        view.on_event(event)
    view.close()
    return out.getvalue().splitlines()


def line_with(lines: list[str], words: str) -> str:
    found = [line for line in lines if words in line]
    assert len(found) == 1, (words, lines)
    return found[0]


def test_plain_lines_say_what_happened(tmp_path: Path) -> None:
    lines = plain(whole_run(tmp_path))
    assert lines[0] == "bias-relu"
    assert "  note: by hand" in lines
    assert "  WARNING: no sandbox" in lines
    assert "exit 1: kernels/bias_relu.cpp:12: foo" in line_with(lines, "grep -n foo")
    assert line_with(lines, "‘foo’ was not declared").split("] ")[1].startswith("!!")
    assert "1.21× (1.16–1.26) over torch.compile" in line_with(lines, "ok  profile")
    assert "3 requests, 2.5 s waiting" in line_with(lines, "turn 2")
    assert "accepted, reward 3" in line_with(lines, "best submission")
    assert line_with(lines, "best so far").startswith("[00:0")


def test_the_name_of_a_call_cannot_steer_the_terminal(tmp_path: Path) -> None:
    run = Recorder(tmp_path)
    run.did(1, "\x1b[2Jbash\x07" + "x" * 500, status="invalid")
    shown = "\n".join(plain(run))
    assert "\x1b" not in shown and "\x07" not in shown
    assert "\\x1b[2Jbash\\x07" in shown and len(shown) < 400


def test_a_diff_is_printed_only_when_asked_for(tmp_path: Path) -> None:
    run = whole_run(tmp_path)
    assert not any("@@" in line for line in plain(run))
    assert sum("@@ -8,3" in line for line in plain(run, diff=True)) == 2


def test_slow_phases_get_a_line_each_and_quick_ones_none() -> None:
    out = io.StringIO()
    view = PlainView(out)
    for phase, detail in (
        ("preparing", "a"),
        ("preparing", "b"),
        ("preparing", "b"),
        ("thinking", "c"),
        ("acting", "d"),
    ):
        view.on_status(Status(phase, detail, 0, time.time()))  # type: ignore[arg-type]
    assert [line.split("..  ")[1] for line in out.getvalue().splitlines()] == ["preparing: a", "preparing: b"]


def test_text_of_a_model_cannot_steer_the_terminal(tmp_path: Path) -> None:
    run = Recorder(tmp_path)
    run.reply(1, "\x1b]0;gotcha\x07 harmless \x1b[2J")
    run.did(1, "bash", {"command": "printf '\x1b[31m'"}, status="failed", exit_code=1, text="\x1b[2Jboom\r")
    text = "\n".join(plain(run))
    assert "\x1b" not in text
    assert "\r" not in text
    assert "boom" in text


def test_every_kind_of_trouble_has_words(tmp_path: Path) -> None:
    run = Recorder(tmp_path)
    run.reply(1, "no call", format_error="there was no action in the reply")
    run.message("user", "there was no action in the reply", origin="format_error")
    run.message("user", "use shared memory", origin="person")
    run.reply(2, "", refusal="I would rather not")
    run.did(2, "bash", {"command": "sleep 999"}, status="timeout", exit_code=124, text="partial")
    run.did(2, "bash", {"command": "eat"}, status="oom", exit_code=137, text="")
    run.did(2, "bash", {"command": "rm -rf /"}, status="denied", text="no")
    run.did(2, "edit_file", {"path": "x"}, status="invalid", text="the text is not unique")
    run.did(2, "compile", status="ok", report=build_report(status="no_sources", module=None, sources=[]))
    run.stop(StopReason.BACKEND, "server: 500")
    run.resumed("call-9")
    run.stop(StopReason.STUCK)
    run.verdict("final", rejected())
    lines = plain(run)
    for words in (
        "unusable reply",
        "message to the model",
        "I would rather not",
        "timed out: partial",
        "killed: out of memory",
        "not run: a person said no",
        "not usable: the text is not unique",
        "no_sources",
        "could not be reached any more (server: 500)",
        "1 action had been cut off",
        "again and again",
        "rejected: numeric.mismatch: output 0 differs",
    ):
        line_with(lines, words)


def test_json_lines_are_the_events_exactly_as_recorded(tmp_path: Path) -> None:
    run = whole_run(tmp_path)
    out = io.StringIO()
    view = JsonView(out)
    view.begin(HEADING, Progress())
    for event in run.events:
        view.on_event(event)
    view.say("not an event")
    view.result({"type": "result", "reward": 3})
    *lines, last = out.getvalue().splitlines()
    assert lines == run.folder.events.read_text().splitlines()
    assert json.loads(last) == {"type": "result", "reward": 3}


def test_a_reader_that_goes_away_does_not_end_the_run() -> None:
    code = (
        "import sys\nfrom agent.ui.views import PlainView, JsonView\n"
        "view = PlainView()\n"
        "for number in range(20000): view.say(f'line {number}')\n"
        "sys.stderr.write('still running\\n')\n"
    )
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as sink:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=sink, stderr=subprocess.PIPE, text=True, env=terminal.environment()
        )
    assert (done.returncode, done.stderr) == (0, "still running\n")


def test_a_verdict_that_nobody_can_read_is_said_to_be_one(tmp_path: Path) -> None:
    run = Recorder(tmp_path)
    run.verdict("best", accepted(reward=7))
    assert "no readable verdict" in line_with(plain(run), "judge")

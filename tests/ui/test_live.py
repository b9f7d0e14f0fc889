"""The live view and the operator's prompts in a real terminal, with real keys and signals."""

import os
import re
import signal
from pathlib import Path

import pytest
import terminal

CTRL_C, CTRL_D = "\x03", "\x04"
HELP = "^C: pause"


def test_the_view_shows_what_happened_and_what_goes_on(tmp_path: Path) -> None:
    with terminal.python("live_player.py", "hold", str(tmp_path), cwd=tmp_path) as shown:
        text = shown.expect("turn 3 of 150")
        assert "no sandbox: code runs on this machine" in text
        assert "written by hand" in text
        assert re.search(r"✓ write_file +0.3 s +kernels/bias_relu.cpp \(16 lines\)", text)
        assert re.search(r"✗ compile +8.2 s +failed: kernels/bias_relu.cpp:12: ‘foo’ was not declared", text)
        text = shown.expect("best 1.21×")
        assert re.search(r"6.5k tokens · no price · best 1.21×", text)
        assert "of 1:00:00" in text
        shown.send(CTRL_C)
        shown.expect("paused:")
        shown.send("c\n")
        assert shown.ended() == 0
        assert "judge" in shown.text


def test_a_key_prints_the_diff_of_the_turn(tmp_path: Path) -> None:
    with terminal.python("live_player.py", "hold", str(tmp_path), cwd=tmp_path) as shown:
        shown.expect(HELP)
        shown.expect("turn 3 of 150")
        assert "@@ -8,3 +8,4 @@" not in shown.text
        shown.send("d")
        text = shown.expect("@@ -8,3 +8,4 @@")
        assert "turn 2 kernels/bias_relu.cpp" in text
        assert not shown.echoes()
        shown.send(CTRL_C)
        shown.expect("paused:")
        assert shown.echoes()
        shown.send("q\n")
        assert shown.ended() == 3
        assert shown.echoes()


@pytest.mark.parametrize(
    ("keys", "chosen", "code"),
    [
        ("c\n", "chosen: continue ''", 0),
        ("continue\n", "chosen: continue ''", 0),
        ("s\n", "chosen: stop ''", 0),
        ("q\n", "chosen: quit ''", 3),
        ("what?\nS\n", "chosen: stop ''", 0),
        ("m\nuse one pass\nand größer tiles\n\n", r"chosen: message 'use one pass\nand größer tiles'", 0),
        ("m\n\nc\n", "chosen: continue ''", 0),
        (CTRL_D, "chosen: stop ''", 0),
        (CTRL_C, "chosen: quit ''", 3),
    ],
)
def test_interrupt_pauses_and_offers_what_to_do(tmp_path: Path, keys: str, chosen: str, code: int) -> None:
    with terminal.python("live_player.py", "hold", str(tmp_path), cwd=tmp_path) as shown:
        shown.expect("turn 3 of 150")
        shown.expect(HELP)
        shown.send(CTRL_C)
        shown.expect("[q]uit (resume later) >")
        shown.send(keys)
        shown.expect(chosen)
        assert shown.ended() == code


def test_further_interrupts_stop_and_then_quit(tmp_path: Path) -> None:
    with terminal.python("live_player.py", "deaf", str(tmp_path), cwd=tmp_path) as shown:
        shown.expect("turn 3 of 150")
        shown.send(CTRL_C)
        shown.expect("pausing after this step")
        shown.send(CTRL_C)
        shown.expect("a stop was requested")
        shown.send(CTRL_C)
        shown.expect("a quit was requested")
        assert shown.ended() == 4
        assert "Traceback" not in shown.text
        assert shown.echoes()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_termination_stops_at_once_also_in_a_terminal(tmp_path: Path, number: signal.Signals) -> None:
    with terminal.python("live_player.py", "deaf", str(tmp_path), cwd=tmp_path) as shown:
        shown.expect("turn 3 of 150")
        os.kill(shown.process.pid, number)
        shown.expect("a stop was requested")
        os.kill(shown.process.pid, number)
        assert shown.ended() == 4


def test_confirmation_asks_before_each_action(tmp_path: Path) -> None:
    with terminal.python("live_player.py", "confirm", str(tmp_path), cwd=tmp_path) as shown:
        text = shown.expect("[a]ll from now on >")
        assert "the model wants to run write_file" in text
        assert "#pragma omp parallel for" in text
        shown.send("y\n")
        shown.expect("decided: run True, message ''")
        shown.expect("[a]ll from now on >", count=2)
        shown.send("perhaps\nn\n")
        shown.expect("why (the model is told")
        shown.send("not on my machine\n")
        shown.expect("decided: run False, message 'not on my machine'")
        shown.expect("grep -n foo kernels/*.cpp")
        shown.send("a\n")
        assert shown.ended() == 0
        assert shown.text.count("decided: run True") == 6


def test_an_interrupt_at_a_confirmation_leads_to_the_pause_menu(tmp_path: Path) -> None:
    with terminal.python("live_player.py", "confirm", str(tmp_path), cwd=tmp_path) as shown:
        shown.expect("[a]ll from now on >")
        shown.send(CTRL_C)
        shown.expect("decided: run False")
        shown.expect("[q]uit (resume later) >")
        shown.send("c\n")
        shown.expect("chosen: continue")
        shown.expect("[a]ll from now on >", count=2)
        shown.send("a\n")
        assert shown.ended() == 0


def test_end_of_input_at_a_confirmation_does_not_run_the_action(tmp_path: Path) -> None:
    with terminal.python("live_player.py", "confirm", str(tmp_path), cwd=tmp_path) as shown:
        shown.expect("[a]ll from now on >")
        shown.send(CTRL_D)
        shown.expect("decided: run False")
        shown.expect("[a]ll from now on >", count=2)
        shown.send("a\n")
        assert shown.ended() == 0


def test_no_colour_and_simple_characters_where_asked_for(tmp_path: Path) -> None:
    with terminal.python(
        "live_player.py", "hold", str(tmp_path), cwd=tmp_path, NO_COLOR="1", PYTHONIOENCODING="ascii"
    ) as shown:
        text = shown.expect("best 1.21x")
        assert "+ write_file" in text
        shown.send(CTRL_C)
        shown.expect("paused:")
        shown.send("c\n")
        assert shown.ended() == 0
        assert not re.search(r"\x1b\[(?:\d+;)*3[0-7]m", shown.output)
        assert shown.output.isascii()

"""Text that is safe to print, and errors that are one clear line."""

import io
import subprocess
import sys

import pytest

from agent.errors import ConfigError
from agent.ui.console import make_console, one_line, print_error, safe


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("progress 1%\rprogress 2%", "progress 1%\\x0dprogress 2%"),
        ("windows\r\nline", "windows\nline"),
        ("a\tb\nc", "a\tb\nc"),
        ("abc\u202edef\u2066", "abc\\u202edef\\u2066"),
        ("\x9b31m", "\\x9b31m"),
        ("lone \ud83d surrogate", "lone \\ud83d surrogate"),
        ("größer, 大, ×", "größer, 大, ×"),
    ],
)
def test_what_could_steer_a_terminal_is_made_visible(text: str, shown: str) -> None:
    assert safe(text) == shown


def test_one_line_is_one_line_and_short() -> None:
    assert one_line("a\n  b\t c") == "a b c"
    assert one_line("x" * 50, 10) == "x" * 9 + "…"


def test_an_error_is_a_line_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(ConfigError("no \x1b such thing", hint="take another"))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: no \\x1b such thing\nhint: take another\n"


def test_a_traceback_is_shown_only_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ConfigError("broken")
    except ConfigError as error:
        print_error(error, debug=True)
        assert "Traceback" in capsys.readouterr().err
        print_error(error)
        assert "Traceback" not in capsys.readouterr().err


def test_markup_in_foreign_text_is_not_interpreted() -> None:
    out = io.StringIO()
    console = make_console()
    console.file = out
    console.print("[bold red]not bold[/] :smile:")
    assert out.getvalue() == "[bold red]not bold[/] :smile:\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
def test_terminals_that_cannot_show_a_character_get_a_simpler_one(encoding: str) -> None:
    code = (
        "from agent.ui.console import prepare_streams; prepare_streams()\n"
        "print('1.93× (1.88–1.97) ✓ ✗ … µs → ★ 大 \\ud83d')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env={"PYTHONIOENCODING": encoding}, check=True
    )
    text = done.stdout.decode(encoding)
    assert "1.88-1.97" in text or "–" in text
    assert "+ x ..." in text
    assert "?" in text


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_were_closed_before_the_start_cost_nothing(closed: str) -> None:
    done = subprocess.run(
        f'"{sys.executable}" -m agent version {closed}', shell=True, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_output_that_is_full_is_named() -> None:
    done = subprocess.run(
        f'"{sys.executable}" -m agent version > /dev/full', shell=True, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert done.stderr.startswith("error: [Errno 28] No space left on device")
    assert "fault in cuda-agent" not in done.stderr


def test_a_width_of_zero_hides_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    make_console().print("something")
    assert capsys.readouterr().out == "something\n"

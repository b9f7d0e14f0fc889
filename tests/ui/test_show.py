"""`agent show`: a run's log in the terminal, by turn, in full, unfinished or damaged, into a pipe."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import terminal
from recorded import Recorder, whole_run

from agent.cli import main
from agent.errors import ConfigError
from agent.judging.reports import Reason
from agent.loop.judgement import Judgement, verdict_record
from agent.trajectory.events import StopReason
from agent.ui.outcome import read_outcome
from agent.ui.show import parse_turns


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["show", *arguments]) == 0
    return capsys.readouterr().out


def test_a_whole_run_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = whole_run(tmp_path)
    text = shown(capsys, str(run.folder.path))
    assert [text.index(f"turn {n}  2.0k in") for n in (1, 2, 3, 4)] == sorted(
        text.index(f"turn {n}  2.0k in") for n in (1, 2, 3, 4)
    )
    for words in (
        "The task is memory bound.",
        "torch::Tensor bias_relu",
        "‘foo’ was not declared in this scope",
        "grep -n foo kernels/*.cpp",
        "3 requests, 2.5 s waiting",
        "1.93× (1.88–1.97) over eager",
        "best so far: 1.21×",
        "stopped: the model submitted its work",
        "bias-relu: accepted, reward 3",
        "795 µs",
    ):
        assert words in text
    assert "lines folded, --full shows them" in text
    assert "line 30" not in text


def test_the_newest_verdict_counts_and_the_first_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = whole_run(tmp_path).folder
    own = read_outcome(folder).verdict
    assert own is not None and read_outcome(folder).later is None
    reasons = (Reason(code="numeric.mismatch", detail="off by 3"),)
    times: dict[str, Any] = {"median_us": None, "speedup": None}
    new = own.model_copy(update={"verdict": "rejected", "correct": False, "reward": -1, "reasons": reasons, **times})
    record = verdict_record(StopReason.SUBMITTED, -1, Judgement({"best": new, "final": new}))
    folder.write_json("verdict.json", record | {"judge": {"agent_version": "9.9"}})
    outcome = read_outcome(folder)
    assert (outcome.verdict, outcome.reward, outcome.rank) == (new, -1, (-1, 0.0))
    text = shown(capsys, str(folder.path))
    assert "bias-relu: rejected, reward -1" in text and "off by 3" in text
    assert "judged again by cuda-agent 9.9, at its end the run had: accepted" in " ".join(text.split())
    assert main(["report", str(folder.path)]) == 0
    report = (folder.path / "report.md").read_text()
    assert "rejected" in report.splitlines()[0] and "judged again by cuda-agent 9.9" in report
    for damage in ('{"judge": 1}', "[]", "{"):
        (folder.path / "verdict.json").write_text(damage)
        assert read_outcome(folder).verdict == own


def test_full_shows_complete_outputs_from_the_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, str(whole_run(tmp_path).folder.path), "--full")
    assert "    line 399\n" in text
    assert "folded" not in text
    assert text.count("You write kernels.") == 40


@pytest.mark.parametrize(("turns", "there"), [("2", {2}), ("2-3", {2, 3}), ("3-", {3, 4})])
def test_turns_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str], turns: str, there: set[int]) -> None:
    text = shown(capsys, str(whole_run(tmp_path).folder.path), "--turn", turns)
    assert {n for n in range(1, 5) if f"turn {n}  2.0k in" in text} == there
    assert "accepted" not in text


@pytest.mark.parametrize("text", ["", "a", "3-2", "-1", "1,2", "1-2-3"])
def test_what_is_no_range_of_turns_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_turns(text)


def test_a_turn_that_is_not_there_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(whole_run(tmp_path).folder.path), "--turn", "9"]) == 2
    assert "has no turn 9" in capsys.readouterr().err


def test_edits_can_be_shown_as_diffs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, str(whole_run(tmp_path).folder.path), "--turn", "1", "--diff")
    assert "@@ -8,3 +8,4 @@" in text
    assert "#include <torch/types.h>" not in text


def test_json_gives_the_chosen_events_as_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = whole_run(tmp_path)
    assert shown(capsys, str(run.folder.path), "--json") == run.folder.events.read_text()
    lines = shown(capsys, str(run.folder.path), "--json", "--turn", "2").splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["reply", *["action", "observation"] * 2]


def test_an_unfinished_run_says_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Recorder(tmp_path / "with space")
    run.reply(1, "first")
    run.action(1, "bash", {"command": "sleep 100"})
    text = shown(capsys, str(run.folder.path))
    assert "nothing was judged" in text
    assert f"agent optimize --resume '{run.folder.path}'" in text


def test_lines_stay_whole_in_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Recorder(tmp_path)
    words = " ".join(f"word{number}" for number in range(100))
    run.reply(1, words, reasoning=f"first\n\n{words}")
    run.did(1, "bash", {"command": f"echo {words}"}, text=words)
    run.stop(StopReason.BACKEND, words)
    text = shown(capsys, str(run.folder.path))
    assert sum(words in line for line in text.splitlines()) == 5
    assert "word99" in next(line for line in text.splitlines() if line.startswith("stopped"))


def test_a_torn_last_line_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = whole_run(tmp_path)
    whole = run.folder.events.read_bytes()
    run.folder.events.write_bytes(whole[:-50])
    assert "bias-relu: accepted" in shown(capsys, str(run.folder.path))


def test_a_damaged_line_is_named_after_what_comes_before_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = whole_run(tmp_path)
    lines = run.folder.events.read_bytes().splitlines(keepends=True)
    lines[8] = b'{"broken\n'
    run.folder.events.write_bytes(b"".join(lines))
    assert main(["show", str(run.folder.path)]) == 3
    captured = capsys.readouterr()
    assert "turn 1" in captured.out
    assert "line 9 is damaged" in captured.err


def test_the_newest_run_of_a_folder_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = whole_run(tmp_path), whole_run(tmp_path)
    os.utime(old.folder.events, (1, 1))
    text = shown(capsys, str(tmp_path / "runs"))
    assert new.folder.run_id in text
    assert old.folder.run_id not in text


@pytest.mark.parametrize("name", ["nothing-here", ".", "model.py"])
def test_what_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (tmp_path / "model.py").write_text("")
    assert main(["show", str(tmp_path / name)]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_escape_sequences_in_a_run_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Recorder(tmp_path)
    run.reply(1, "\x1b[2J\x1b]0;title\x07", reasoning="\x1b[31mred")
    run.did(1, "bash", {"command": "printf '\x1b[H'"}, text="\x1b[2Jout\r", status="failed", exit_code=1)
    for more in ([], ["--full"], ["--diff"]):
        text = shown(capsys, str(run.folder.path), *more)
        assert "\x1b" not in text
        assert "\r" not in text


def test_a_log_outside_the_run_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("a secret\n")
    run = Recorder(tmp_path)
    run.reply(1, "look")
    run.did(1, "bash", {"command": "x"}, text="what the model saw", log=f"../../{secret.name}")
    text = shown(capsys, str(run.folder.path), "--full")
    assert "a secret" not in text
    assert "what the model saw" in text


def test_a_pipe_that_closes_early_is_no_error(tmp_path: Path) -> None:
    run = Recorder(tmp_path)
    run.reply(1, "first")
    run.did(1, "bash", {"command": "seq 200000"}, text="\n".join(str(n) for n in range(20_000)))
    command = f"{sys.executable} -m agent show '{run.folder.path}' --full | head -n 3"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=terminal.environment())
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 3

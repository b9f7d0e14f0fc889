"""`agent optimize` and `agent judge` as a user runs them: whole commands in the bubblewrap sandbox, with signals."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import terminal
from recorded import BINDING, KERNEL, MODEL, MODEL_NEW
from terminal import Terminal

from agent.backends import scripted_steps as steps
from agent.backends.fences import render
from agent.backends.scripted_server import ScriptedServer
from agent.config import Config
from agent.sandbox.open import check_bubblewrap

pytestmark = [pytest.mark.bubblewrap, pytest.mark.torch]
AGENT = [sys.executable, "-m", "agent"]
HEAD = "---\nauthor: hand-written\ntarget: cpu\ntask: model.py\n---\n"
FILES = (
    ("write_file", {"path": "kernels/bias_relu.cpp", "content": KERNEL.rstrip("\n")}),
    ("write_file", {"path": "kernels/bias_relu_binding.cpp", "content": BINDING.rstrip("\n")}),
    ("write_file", {"path": "model_new.py", "content": MODEL_NEW.rstrip("\n")}),
)
SLOW = "echo it has begun; sleep 300"


@pytest.fixture(scope="module", autouse=True)
def _bubblewrap() -> None:
    report = check_bubblewrap(Config().sandbox)
    if not report.usable:
        pytest.skip(f"bubblewrap cannot be used here: {report.detail}")


@dataclass(frozen=True)
class Project:
    """A user's folder: `optimize` is the command line for its task and a script of turns."""

    folder: Path

    @property
    def runs(self) -> list[Path]:
        return sorted(path for path in (self.folder / "runs").iterdir() if not path.name.startswith("."))

    def optimize(self, turns: str, *more: str) -> list[str]:
        (self.folder / "model.py").write_text(MODEL)
        (self.folder / "turns.md").write_text(HEAD + turns)
        return self.command("--script", "turns.md", *more)

    def command(self, *more: str) -> list[str]:
        return [*AGENT, "optimize", "model.py", "--sandbox", "bubblewrap", "--target", "cpu", *more]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = tmp_path / "Größe mit Leerzeichen"
    folder.mkdir()
    return Project(folder)


def turn(number: int, *blocks: tuple[str, dict[str, Any]], text: str = "") -> str:
    return f"## Turn {number}\n{text}\n" + "\n".join(render(name, arguments) for name, arguments in blocks) + "\n"


def submits(number: int = 1) -> str:
    return turn(number, ("submit", {"summary": "nothing to show"}))


def run(command: list[str], project: Project, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=project.folder, env=terminal.environment(MAX_JOBS="2", **env), capture_output=True, text=True
    )


@contextmanager
def running(command: list[str], project: Project) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command,
        cwd=project.folder,
        env=terminal.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(process: subprocess.Popen[str], kind: str) -> dict[str, Any]:
    """The next event of this type on the JSON output."""
    assert process.stdout is not None
    for line in process.stdout:
        event: dict[str, Any] = json.loads(line)
        if event["type"] == kind:
            return event
    raise AssertionError(f"no {kind} came: {process.stderr.read() if process.stderr else ''}")


def test_a_whole_run_as_json_and_everything_made_of_it(project: Project) -> None:
    turns = turn(1, *FILES, text="All at once.") + turn(2, ("verify", {})) + submits(3)
    done = run(project.optimize(turns, "--json"), project)
    (folder,) = project.runs
    *lines, last = done.stdout.splitlines()
    result = json.loads(last)
    assert lines == (folder / "events.jsonl").read_text().splitlines()
    assert done.returncode == result["exit_code"] in (0, 1), done.stderr
    assert (result["type"], result["reason"], result["run"]) == ("result", "submitted", str(folder))
    assert result["verdict"]["verdict"] == "accepted", result["verdict"]
    assert result["best"] == str(folder / "best")
    assert json.loads((folder / "config.json").read_text())["sandbox"]["kind"] == "bubblewrap"
    assert "accepted, reward" in (folder / "report.md").read_text()
    assert (folder / "best" / "use.py").is_file()

    shown = run([*AGENT, "show", str(folder)], project)
    assert "All at once." in shown.stdout
    assert shown.returncode == 0

    before = (folder / "events.jsonl").read_bytes()
    again = run([*AGENT, "optimize", "--resume", str(folder), "--json"], project)
    assert again.returncode == done.returncode
    assert json.loads(again.stdout.splitlines()[-1])["reward"] == result["reward"]
    assert (folder / "events.jsonl").read_bytes() == before

    judged = run(
        [*AGENT, "judge", str(folder / "best"), "--sandbox", "bubblewrap", "--target", "cpu", "--json"], project
    )
    verdict = json.loads(judged.stdout)
    assert (judged.returncode, verdict["verdict"], verdict["correct"]) == (0, "accepted", True)


def test_several_tries_are_summed_up(project: Project) -> None:
    done = run(project.optimize(submits(), "--samples", "2", "--json"), project)
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    assert [o["type"] for o in objects].count("result") == 2
    assert objects[-1]["type"] == "summary"
    assert sorted(objects[-1]["runs"]) == [str(path) for path in project.runs]
    assert {o["run"] for o in objects[:-1]} == set(objects[-1]["runs"])
    assert done.returncode == objects[-1]["exit_code"] == 1, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_stops_and_judges(project: Project, number: signal.Signals) -> None:
    command = project.optimize(turn(1, ("bash", {"command": SLOW})) + submits(2), "--json")
    with running(command, project) as process:
        wait_for(process, "action")
        process.send_signal(number)
        result = wait_for(process, "result")
        assert process.wait() == 1
        assert process.stderr is not None
        assert process.stderr.read().startswith("stopping: ")
    assert (result["reason"], result["finished"]) == ("cancelled", True)
    assert (project.runs[0] / "report.md").is_file()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_quits_and_nothing_stays_alive(project: Project, number: signal.Signals) -> None:
    marker = f"sleep 31{os.getpid() % 1000:03}"
    command = project.optimize(turn(1, *FILES, ("bash", {"command": marker})) + submits(2), "--json")
    with running(command, project) as process:
        for _ in range(1 + len(FILES)):
            wait_for(process, "action")
        process.send_signal(number)
        wait_for(process, "stop")
        process.send_signal(number)
        result = wait_for(process, "result")
        assert process.wait() == 128 + number
    assert (result["finished"], result["exit_code"]) == (False, 128 + number)
    assert not (project.runs[0] / "report.md").exists()
    alive = subprocess.run(["pgrep", "-f", f"^{marker}$"], capture_output=True, text=True)
    assert alive.stdout == ""


def test_a_run_that_was_killed_is_resumed(project: Project) -> None:
    command = project.optimize(turn(1, ("bash", {"command": SLOW})) + submits(2), "--json")
    with running(command, project) as process:
        wait_for(process, "action")
        process.kill()
        process.wait()
    (folder,) = project.runs
    shown = run([*AGENT, "show", str(folder)], project)
    assert f"agent optimize --resume '{folder}'" in shown.stdout
    resumed = run([*AGENT, "optimize", "--resume", str(folder), "--plain"], project)
    assert resumed.returncode == 1, resumed.stderr
    assert "resumed  1 action had been cut off" in resumed.stdout
    assert "turn 2" in resumed.stdout
    assert (folder / "report.md").is_file()


def test_a_pause_in_the_terminal_takes_a_message_to_the_model(project: Project) -> None:
    slow = turn(1, ("bash", {"command": "echo it has begun; sleep 4; echo it is over"}))
    command = project.optimize(slow + submits(2))
    with Terminal(command, cwd=project.folder) as shown:
        shown.expect("turn 1 bash")
        shown.send("\x03")
        shown.expect("pausing after this step")
        shown.expect("paused: ")
        shown.send("m\nthink of größer tiles\n\n")
        shown.expect("message to the model  think of größer tiles")
        code = shown.ended()
        assert code == 1, shown.text
        assert shown.echoes()
        assert "rejected, reward -1" in shown.text
    events = [json.loads(line) for line in (project.runs[0] / "events.jsonl").read_text().splitlines()]
    said = [e["message"]["content"] for e in events if e["type"] == "message" and e["origin"] == "person"]
    assert said == ["think of größer tiles"]
    bash = next(e for e in events if e["type"] == "observation")
    assert "it is over" in bash["text"]


def test_what_a_person_does_not_allow_is_not_run(project: Project) -> None:
    turns = (
        turn(1, ("bash", {"command": "touch was-here"})) + turn(2, ("bash", {"command": "touch allowed"})) + submits(3)
    )
    with Terminal(project.optimize(turns, "--confirm"), cwd=project.folder) as shown:
        shown.expect("[a]ll from now on >")
        assert "touch was-here" in shown.text
        shown.send("n\nnot that file\n")
        shown.expect("[a]ll from now on >", count=2)
        shown.send("a\n")
        shown.ended()
    (folder,) = project.runs
    assert not (folder / "workspace" / "was-here").exists()
    assert (folder / "workspace" / "allowed").exists()
    assert "not that file" in (folder / "events.jsonl").read_text()


def test_a_dumb_terminal_gets_plain_lines(project: Project) -> None:
    with Terminal(project.optimize(submits()), cwd=project.folder, env=terminal.environment(TERM="dumb")) as shown:
        shown.ended()
    assert "--  turn 1" in shown.text
    assert "\x1b" not in shown.output


@pytest.mark.parametrize(
    ("answers", "model", "words"),
    [
        ([], "another", "another"),
        ([steps.Step("<html>sign in</html>", content_type="text/html")] * 9, "scripted", "web page"),
        ([steps.empty_choices()] * 9, "scripted", "choices"),
    ],
    ids=["unknown model", "HTML", "empty choices"],
)
def test_a_server_that_cannot_be_used_is_said_in_one_line(
    project: Project, answers: list[steps.Step], model: str, words: str
) -> None:
    (project.folder / "model.py").write_text(MODEL)
    with ScriptedServer(answers) as server:
        command = project.command("--base-url", server.base_url, "--model", model, "--set", "backend.max_attempts=2")
        done = run(command, project)
    assert done.returncode == 3
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert words in errors[0]
    assert "Traceback" not in done.stderr


def test_a_task_that_raises_leaves_no_run_behind(project: Project) -> None:
    (project.folder / "model.py").write_text(MODEL.replace("return [torch.randn(64, 32)]", "raise OSError('no data')"))
    (project.folder / "turns.md").write_text(HEAD + submits())
    done = run(project.command("--script", "turns.md", "--plain"), project)
    assert done.returncode == 2, done.stderr
    assert "no data" in done.stderr
    assert project.runs == []


def test_the_reader_of_the_output_may_go_away(project: Project) -> None:
    command = " ".join(f"'{word}'" for word in project.optimize(submits())) + " | head -n 1; echo ${PIPESTATUS[0]}"
    done = run(["bash", "-c", command], project)
    assert done.stdout.splitlines()[-1] == "1", done.stderr
    assert "Traceback" not in done.stderr
    assert (project.runs[0] / "report.md").is_file()


def test_tries_side_by_side_have_a_row_each(project: Project) -> None:
    command = project.optimize(turn(1, ("bash", {"command": SLOW})) + submits(2), "--samples", "2", "--workers", "2")
    with Terminal(command, cwd=project.folder) as shown:
        shown.expect("acting: bash", count=2)
        assert "^C: stop and judge" in shown.text
        rows = [line.split() for line in shown.text.splitlines() if "acting: bash" in line]
        assert {row[0] for row in rows} <= {"1", "2"}
        shown.send("\x03")
        shown.expect("stopping: the best submission is judged")
        assert shown.ended() == 1, shown.text
        assert shown.echoes()
    assert "2 tries" in shown.text
    assert "✗ try 1" in shown.text
    assert "✗ try 2" in shown.text
    assert len(project.runs) == 2


def test_confirming_is_for_one_try_at_a_time(project: Project) -> None:
    with Terminal(
        project.optimize(submits(), "--samples", "2", "--workers", "2", "--confirm"), cwd=project.folder
    ) as shown:
        assert shown.ended() == 2
    assert "--confirm asks about one episode at a time" in shown.text


def test_a_search_is_not_resumed_but_its_runs_are(project: Project) -> None:
    done = run([*AGENT, "optimize", "--resume", "runs/x", "--search", "beam"], project)
    assert done.returncode == 2
    assert "leave --search away" in done.stderr


def test_turns_for_another_target_are_refused_in_one_line(project: Project) -> None:
    command = project.optimize(submits())
    (project.folder / "turns.md").write_text(HEAD.replace("target: cpu", "target: cuda") + submits())
    done = run(command, project)
    assert done.returncode == 2
    error, hint = done.stderr.strip().splitlines()
    assert error.startswith("error: ") and "holds turns for target cuda, and this run is for cpu" in error
    assert "a machine with an NVIDIA GPU" in hint and "--backend builtin" in hint
    assert not (project.folder / "runs").exists()

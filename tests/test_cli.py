"""The command line: help, exit codes, and a clear error for everything that a person can give wrongly."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agent.backends import scripted_steps as steps
from agent.backends.scripted_server import ScriptedServer
from agent.cli import main
from tests.sandbox.sandbox_kinds import require

ROOT = Path(__file__).resolve().parent.parent
MODEL = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(4)]


def get_init_inputs():
    return []
"""
Failing = Callable[..., str]


@pytest.fixture
def task(tmp_path: Path) -> Path:
    folder = tmp_path / "Größe mit Leerzeichen"
    folder.mkdir()
    path = folder / "model.py"
    path.write_text(MODEL, encoding="utf-8")
    return path


@pytest.fixture
def failing(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Failing]:
    """Runs a command that must fail with `code`, one line of error and no traceback; returns what stderr got."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)

    def fail(*arguments: str | Path, code: int) -> str:
        assert main([str(argument) for argument in arguments]) == code
        captured = capsys.readouterr()
        assert captured.out == ""
        assert "Traceback" not in captured.err
        assert captured.err.startswith("error: ")
        assert captured.err.count("error: ") == 1
        return captured.err

    yield fail
    assert not list(tmp_path.glob("**/events.jsonl")), "a run folder was left behind"


@pytest.fixture
def serve() -> Iterator[Callable[..., ScriptedServer]]:
    with ExitStack() as stack:

        def start(answers: Iterable[steps.Step], **options: Any) -> ScriptedServer:
            return stack.enter_context(ScriptedServer(answers, **options))

        yield start


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["optimize"],
        ["judge"],
        ["show"],
        ["report"],
        ["doctor"],
        ["image"],
        ["image", "build"],
        ["sandbox", "clean"],
    ],
    ids=lambda words: " ".join(words) or "agent",
)
def test_help_of_every_command_is_there_and_light(command: list[str]) -> None:
    code = (
        "import sys\nfrom agent.cli import main\n"
        f"code = main({[*command, '--help']!r})\n"
        "heavy = ('langgraph', 'openai', 'docker', 'torch', 'jinja2', 'sqlite3', 'rich')\n"
        "print('LOADED', [name for name in heavy if name in sys.modules])\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: agent")
    assert "LOADED []" in done.stdout


def test_help_is_printed_on_an_ascii_terminal() -> None:
    command = [sys.executable, "-m", "agent", "optimize", "--help"]
    env = {"PATH": os.environ["PATH"], "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, cwd=ROOT, env=env, check=True)
    assert b"--i-understand-this-runs-model-code-on-my-machine" in done.stdout


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out.startswith("cuda-agent 0.")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["optimise"], "Did you mean 'optimize'"),
        (["optimize", "--trget", "cpu"], "--target"),
        (["optimize", "--target", "gpu"], "--target"),
        (["optimize", "--turns", "many"], "--turns"),
        (["optimize", "--turns", "-3"], "--turns"),
        (["optimize", "--samples", "0"], "--samples"),
        (["optimize", "a.py", "b.py"], "b.py"),
        (["judge"], "WORKSPACE"),
        (["show"], "RUN"),
        (["image", "biuld"], "build"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_unknown_words_are_named_with_what_was_meant(failing: Failing, arguments: list[str], words: str) -> None:
    said = failing(*arguments, code=2)
    assert words in said
    assert "--help" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("class Model(:\n", "not valid Python"),
        (MODEL.replace("class Model", "class Mode1"), "has no class `Model"),
        (MODEL.replace("get_inputs", "inputs"), "get_inputs()"),
        (MODEL.replace("get_init_inputs", "init"), "get_init_inputs()"),
        ("", "class `Model"),
        (b"\xff\xfe", "not UTF-8"),
    ],
    ids=["syntax", "no Model", "no get_inputs", "no get_init_inputs", "empty", "not text"],
)
def test_a_file_that_is_no_task_is_refused(failing: Failing, task: Path, text: str | bytes, words: str) -> None:
    task.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert words in failing("optimize", task, code=2)


def test_a_task_that_is_not_there_is_refused(failing: Failing, tmp_path: Path, task: Path) -> None:
    assert "missing.py" in failing("optimize", tmp_path / "missing.py", code=2)
    assert f"give {task}" in failing("optimize", task.parent, code=2)
    assert "no MODEL.py" in failing("optimize", code=2)


@pytest.mark.parametrize(
    "command",
    [
        ["optimize", "~no-such-user/model.py"],
        ["optimize", "--resume", "~no-such-user/run"],
        ["optimize", "TASK", "--script", "~no-such-user/turns.md"],
        ["show", "~no-such-user/run"],
        ["report", "~no-such-user/run"],
    ],
    ids=" ".join,
)
def test_a_home_that_does_not_exist_is_named(failing: Failing, task: Path, command: list[str]) -> None:
    said = failing(*(str(task) if word == "TASK" else word for word in command), code=2)
    assert "no home directory for ~no-such-user" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "agnet.x=1"], "unknown setting agnet.x"),
        (["--set", "limits.turn=3"], "did you mean limits.turns?"),
        (["--set", "limits.turns=abc"], "limits.turns"),
        (["--set", "limits.turns"], "section.key=value"),
        (["--set", "limits.time_s=Infinity"], "limits.time_s"),
        (["--set", "backend.temperature=NaN"], "backend.temperature"),
        (["--config", "missing.toml"], "cannot read missing.toml"),
        (["--config", "broken.toml"], "not valid TOML"),
        (["--config", "unknown.toml"], "did you mean limits.turns?"),
        (["--time", "soon"], "--time 'soon'"),
        (["--tokens", "lots"], "--tokens 'lots'"),
        (["--resume", "nowhere"], "not a run folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_settings_that_make_no_sense_are_named(
    failing: Failing, tmp_path: Path, task: Path, arguments: list[str], words: str
) -> None:
    (tmp_path / "broken.toml").write_text("limits = [")
    (tmp_path / "unknown.toml").write_text("[limits]\nturn = 3\n")
    given = [] if "--resume" in arguments else [task]
    assert words in failing("optimize", *given, *arguments, code=2)


@pytest.mark.parametrize("wrong", [[], ["--tmie", "3"], ["--turns", "many"], ["--time", "soon"], ["--set", "a.b=1"]])
def test_a_program_gets_an_error_as_an_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str]
) -> None:
    assert main(["optimize", str(tmp_path / "missing.py"), "--json", *wrong]) == 2
    captured = capsys.readouterr()
    error = json.loads(captured.out)
    assert (error["type"], error["exit_code"]) == ("error", 2)
    assert captured.err.startswith(f"error: {error['message']}")


def test_a_resumed_run_has_its_task_already(failing: Failing, task: Path) -> None:
    assert "leave MODEL.py away" in failing("optimize", task, "--resume", "somewhere", code=2)


def test_a_replay_of_a_task_without_a_script_says_how_to_configure_a_model(failing: Failing, task: Path) -> None:
    said = failing("optimize", task, "--sandbox", "bubblewrap", "--backend", "replay", code=2)
    assert "no language model is configured" in said
    assert [line.split(":")[0] for line in said.splitlines()] == ["error", "hint", "local", "replay", "none"]


def test_a_missing_key_is_named(failing: Failing, task: Path) -> None:
    command = ("optimize", task, "--sandbox", "bubblewrap", "--model", "some-model")
    assert "OPENAI_API_KEY" in failing(*command, code=3)
    said = failing(*command, "--base-url", "https://example.invalid/v1", "--api-key-env", "MY_KEY", code=3)
    assert "MY_KEY" in said


def test_a_refused_key_is_said_before_anything_is_prepared(
    failing: Failing, task: Path, serve: Callable[..., ScriptedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "wrong")
    server = serve([], api_key="right")
    command = ("optimize", task, "--sandbox", "bubblewrap", "--model", "scripted", "--base-url", server.base_url)
    said = failing(*command, "--api-key-env", "MY_KEY", code=3)
    assert "refused the key" in said
    assert "$MY_KEY" in said
    assert "wrong" not in said
    assert not server.chats


def test_a_server_that_is_not_there_is_named(failing: Failing, task: Path) -> None:
    url = "http://127.0.0.1:9/v1"
    said = failing("optimize", task, "--sandbox", "bubblewrap", "--model", "m", "--base-url", url, code=3)
    assert "127.0.0.1:9" in said
    assert "hint: " in said


@pytest.mark.parametrize("backend", ["openi", "no.such.module.Class", "json:loads"])
def test_a_backend_that_does_not_exist_is_refused(failing: Failing, task: Path, backend: str) -> None:
    assert backend in failing("optimize", task, "--sandbox", "bubblewrap", "--backend", backend, code=2)


def test_no_sandbox_needs_consent(failing: Failing, task: Path) -> None:
    said = failing("optimize", task, "--sandbox", "none", *replay(task), code=2)
    assert "--i-understand-this-runs-model-code-on-my-machine" in said


def test_a_target_that_cannot_be_judged_is_refused_before_anything_is_spent(failing: Failing, task: Path) -> None:
    assert "target cuda" in failing("optimize", task, "--target", "cuda", *replay(task), code=2)


def test_an_engine_that_does_not_run_is_named(
    failing: Failing, task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    said = failing("optimize", task, "--sandbox", "docker", *replay(task), code=3)
    assert "no Docker engine answers" in said
    assert "--sandbox bubblewrap" in said


@pytest.mark.docker
def test_an_image_that_is_missing_is_named(failing: Failing, task: Path) -> None:
    require("docker")
    image = "sandbox.image=no-such-image:latest"
    said = failing("optimize", task, "--sandbox", "docker", "--set", image, *replay(task), code=3)
    assert "no-such-image:latest" in said


def test_a_runs_folder_that_cannot_be_written_is_named(failing: Failing, task: Path) -> None:
    said = failing("optimize", task, "--sandbox", "bubblewrap", *replay(task), "-o", "/proc/runs", code=2)
    assert "/proc/runs" in said
    assert "choose another one with -o" in said


def test_confirmation_needs_a_terminal(failing: Failing, task: Path) -> None:
    said = failing("optimize", task, "--sandbox", "bubblewrap", *replay(task), "--confirm", code=2)
    assert "--confirm needs a terminal" in said


def test_a_broken_script_is_named_with_its_line(failing: Failing, task: Path) -> None:
    script = task.parent / "turns.md"
    script.write_text("---\nauthor: hand-written\ntarget: cpu\ntask: model.py\n---\n## Turn 1\n```action dance\n```\n")
    said = failing("optimize", task, "--sandbox", "bubblewrap", "--script", script, code=2)
    assert "line 7" in said


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["nowhere"], "there is no folder"),
        (["model.py"], "is a file"),
        (["."], "has no model_new.py"),
        (["model.py", "nothing.py"], "there is no file nothing.py"),
        (["model.py", "model.py", "model.py"], "MODEL.py MODEL_NEW.py"),
    ],
)
def test_what_cannot_be_judged_is_refused(
    failing: Failing, task: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], words: str
) -> None:
    monkeypatch.chdir(task.parent)
    assert words in failing("judge", *names, "--json", code=2)


def test_a_judge_that_cannot_run_still_prints_one_object(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (task.parent / "model_new.py").write_text("class ModelNew: ...\n")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    assert main(["judge", str(task.parent), "--sandbox", "docker", "--target", "cpu", "--json"]) == 3
    captured = capsys.readouterr()
    verdict = json.loads(captured.out)
    assert (verdict["verdict"], verdict["reward"], verdict["correct"]) == ("error", None, None)
    assert "no Docker engine answers" in verdict["reasons"][0]["detail"]
    assert "no Docker engine answers" in captured.err


def test_a_fault_of_the_program_is_one_line_and_a_traceback_on_request(
    task: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("agent.ui.optimize.load_task", broken)
    assert main(["optimize", str(task), "--json"]) == 3
    out, said = capsys.readouterr()
    assert (json.loads(out)["type"], json.loads(out)["exit_code"]) == ("error", 3)
    assert "a fault in cuda-agent: ZeroDivisionError" in said
    assert "Traceback" not in said
    assert main(["optimize", str(task), "--debug"]) == 3
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["build"], ["build", "--cpu", "--cuda"], ["build", "--cpu", "--target", "cuda"]])
def test_an_image_has_one_target(failing: Failing, arguments: list[str]) -> None:
    assert "one of --cpu and --cuda" in failing("image", *arguments, code=2)


def test_the_wheel_folder_of_an_image_must_exist(failing: Failing) -> None:
    assert "no wheel folder" in failing("image", "build", "--cpu", "--wheels", "nowhere", code=2)


def test_an_age_that_makes_no_sense_is_named(failing: Failing) -> None:
    assert "--older-than 'old'" in failing("sandbox", "clean", "--older-than", "old", code=2)


def replay(task: Path) -> tuple[str, str]:
    """Options for a script of one turn."""
    script = task.parent / "turns.md"
    script.write_text(
        "---\nauthor: hand-written\ntarget: cpu\ntask: model.py\n---\n## Turn 1\n```action submit\nnothing\n```\n"
    )
    return "--script", str(script)


def test_an_empty_folder_for_runs_is_refused(failing: Failing, task: Path) -> None:
    assert "-o names no folder" in failing("optimize", str(task), "-o", "", code=2)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_told_to_end_says_which_signal_it_was(number: signal.Signals) -> None:
    argv = [sys.executable, "-c", WAITING, str(number.value)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 128 + number, done.stderr
    assert done.stderr.endswith("interrupted\n")


WAITING = """
import os, signal, sys
import agent.cli
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup, under which tests may run, hands on that it is ignored
agent.cli.app = lambda *_, **__: os.kill(os.getpid(), int(sys.argv[1]))
sys.exit(agent.cli.main(["doctor"]))
"""

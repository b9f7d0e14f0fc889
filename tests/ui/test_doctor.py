"""`agent doctor`: what is checked, what a failure advises, and when `agent optimize` could run."""

import json
from pathlib import Path

import pytest

from agent.backends import scripted_steps as steps
from agent.backends.scripted_server import ScriptedServer
from agent.cli import main
from agent.config import Config, default_files, load_config
from agent.sandbox.open import check_bubblewrap
from agent.ui.checks import Check, check_model, check_sandbox_choice, check_storage
from agent.ui.doctor import could_run
from agent.ui.sandbox_checks import check_docker, check_inside


def model_checks(server: ScriptedServer, *settings: str) -> list[Check]:
    basics = [f"backend.base_url={server.base_url}", "backend.model=scripted"]
    return list(check_model(load_config(settings=[*basics, *settings])))


def failed(checks: list[Check]) -> Check:
    (check,) = (check for check in checks if check.status == "fail")
    assert check.advice
    assert check.needed
    assert not could_run(checks)
    return check


def test_only_what_a_run_depends_on_keeps_it_from_running() -> None:
    needed = Check("g", "a", "fail", needed=True)
    others = [Check("g", "b", "fail"), Check("g", "c", "warn", needed=True), Check("g", "d", "skip")]
    assert could_run(others)
    assert not could_run([*others, needed])


def test_a_server_that_answers_a_call_is_fine() -> None:
    calls = [("report_number", {"number": 4817})]
    with ScriptedServer([steps.reply("", calls), steps.reply("fine")]) as server:
        checks = model_checks(server)
    assert [check.status for check in checks] == ["ok"] * len(checks)
    assert checks[-1].name == "tool call"


def test_a_model_that_calls_nothing_gets_the_advice_to_use_text() -> None:
    with ScriptedServer([steps.reply("I cannot call anything")]) as server:
        assert "--tool-protocol text" in failed(model_checks(server)).advice


def test_an_unknown_model_is_named_with_near_ones() -> None:
    with ScriptedServer([], models=["scripted-2"]) as server:
        check = failed(model_checks(server))
    assert "scripted-2" in check.detail
    assert "--model" in check.advice


def test_a_refused_key_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "wrong")
    with ScriptedServer([], api_key="right") as server:
        check = failed(model_checks(server, "backend.api_key_env=MY_KEY"))
    assert "MY_KEY is set, but the server refuses it" in check.advice
    assert "wrong" not in check.detail


def test_a_server_that_is_not_there_is_named() -> None:
    config = load_config(settings=["backend.base_url=http://127.0.0.1:9/v1", "backend.model=m"])
    assert "127.0.0.1:9" in failed(list(check_model(config))).advice


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    settings = ["backend.base_url=https://example.invalid/v1", "backend.model=m", "backend.api_key_env=NO_SUCH_KEY"]
    assert "NO_SUCH_KEY is not set" in failed(list(check_model(load_config(settings=settings)))).advice


def test_without_a_model_the_shipped_examples_can_be_run() -> None:
    (check,) = check_model(Config())
    assert check.status == "warn"
    assert "shipped examples" in check.detail
    assert "--model" in check.advice


def test_a_folder_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_AGENT_CACHE", "/proc/cache")
    checks = list(check_storage(load_config(settings=["run.output=/proc/runs"])))
    assert [(check.name, check.status) for check in checks] == [("runs folder", "fail"), ("cache", "fail")]
    assert "-o" in checks[0].advice
    assert "CUDA_AGENT_CACHE" in checks[1].advice


def test_an_engine_that_does_not_run_matters_only_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    (check,) = check_docker(Config(), "cpu")
    assert (check.status, check.needed) == ("skip", False)
    (check,) = check_docker(load_config(settings=["sandbox.kind=docker"]), "cpu")
    assert (check.status, check.needed) == ("fail", True)
    assert check.advice


@pytest.mark.docker
def test_a_missing_image_says_how_to_build_it() -> None:
    checks = list(check_docker(load_config(settings=["sandbox.image=no-such-image:x"]), "cpu"))
    if checks[0].status != "ok":
        pytest.skip(checks[0].detail)
    assert checks[0].detail.endswith("docker.sock")
    assert (checks[1].status, checks[1].advice) == ("fail", "agent image build --cpu")


def test_no_sandbox_is_a_warning() -> None:
    check, kind = check_sandbox_choice(load_config(settings=["sandbox.kind=none", "sandbox.i_understand=true"]))
    assert (check.status, kind) == ("warn", "none")


@pytest.mark.bubblewrap
def test_an_interpreter_without_torch_fails_inside(tmp_path: Path) -> None:
    require_bubblewrap()
    config = load_config(settings=["sandbox.python=/usr/bin/python3"])
    checks = {check.name: check for check in check_inside(config, "bubblewrap", "cpu", needed=True)}
    assert checks["no network"].status == "ok"
    assert checks["g++"].status == "ok"
    assert checks["torch"].status == "fail"
    assert "sandbox.python" in checks["torch"].advice
    assert checks["g++"].seconds > 0


@pytest.mark.bubblewrap
@pytest.mark.torch
def test_what_was_not_known_in_time_is_no_failure_and_a_quick_look_leaves_compilers_out() -> None:
    require_bubblewrap()
    checks = {check.name: check for check in check_inside(Config(), "bubblewrap", "cpu", needed=True, patience_s=0.2)}
    assert (checks["torch"].status, "--patience" in checks["torch"].advice) == ("warn", True)
    quick = {check.name for check in check_inside(Config(), "bubblewrap", "cpu", needed=True, quick=True)}
    assert "torch" in quick and "torch.compile" not in quick


@pytest.mark.bubblewrap
@pytest.mark.torch
def test_the_whole_examination_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    require_bubblewrap()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    assert main(["doctor", "--json", "--target", "cpu"]) == 0
    report = json.loads(capsys.readouterr().out)
    inside = {check["name"]: check["status"] for check in report["checks"] if check["group"] == "inside bubblewrap"}
    names = ("no network", "user", "executable /tmp", "g++", "torch", "torch.compile")
    assert inside.pop("walls") in ("ok", "warn")  # it needs Linux 6.7
    assert inside == dict.fromkeys(names, "ok")
    assert report["ok"] is True
    assert report["seconds"] >= max(check["seconds"] for check in report["checks"]) > 0


@pytest.mark.bubblewrap
@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="this machine has a GPU")
def test_a_machine_without_a_gpu_says_so_before_anything_else() -> None:
    require_bubblewrap()
    (check,) = check_inside(Config(), "bubblewrap", "cuda", needed=True)
    assert (check.name, check.status, check.needed) == ("start", "fail", True)
    assert "no nvidia devices" in check.detail and "--target cpu" in check.advice


@pytest.mark.gpu
@pytest.mark.docker
@pytest.mark.skipif(not Path("/dev/nvidia0").exists(), reason="no NVIDIA GPU on this machine")
def test_every_layer_of_the_gpu_works_inside() -> None:
    config = load_config(files=default_files(Path.cwd()))
    for check in check_docker(config, "cuda"):
        if check.status != "ok":
            pytest.skip(check.detail)
    wrong = [c for c in check_inside(config, "docker", "cuda", needed=True) if c.status != "ok"]
    assert wrong == []


def require_bubblewrap() -> None:
    report = check_bubblewrap(Config().sandbox)
    if not report.usable:
        pytest.skip(f"bubblewrap cannot be used here: {report.detail}")

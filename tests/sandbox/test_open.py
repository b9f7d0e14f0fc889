"""Which kind is chosen, consent, and what is left of dead processes."""

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from sandbox_kinds import Opener, require, shell, unusable

from agent.config import SandboxConfig
from agent.errors import ConfigError, SandboxError
from agent.sandbox import bubblewrap
from agent.sandbox.base import SandboxSpec
from agent.sandbox.labels import is_abandoned, owner_labels, start_of
from agent.sandbox.open import check_bubblewrap, check_docker, choose_kind, open_sandbox, pinned
from agent.sandbox.orphans import clean, list_sandboxes


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")


@pytest.fixture
def no_bwrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bubblewrap, "_candidates", lambda: iter(()))


def test_what_is_configured_is_taken() -> None:
    assert [choose_kind(SandboxConfig(kind=kind)) for kind in ("docker", "bubblewrap", "none")] == [
        "docker",
        "bubblewrap",
        "none",
    ]


@pytest.mark.docker
def test_auto_takes_docker_where_it_works() -> None:
    require("docker")
    assert choose_kind(SandboxConfig()) == "docker"


@pytest.mark.bubblewrap
def test_auto_takes_bubblewrap_where_no_engine_answers(no_engine: None) -> None:
    require("bubblewrap")
    assert choose_kind(SandboxConfig()) == "bubblewrap"


@pytest.mark.bubblewrap
def test_a_pinned_kind_stays_whatever_happens_to_the_engine(no_engine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    require("bubblewrap")
    config = pinned(SandboxConfig(pids=100), target="cpu")
    monkeypatch.delenv("DOCKER_HOST")
    assert (config.kind, config.pids, choose_kind(config)) == ("bubblewrap", 100, "bubblewrap")


@pytest.mark.docker
def test_an_engine_without_the_image_does_not_count() -> None:
    require("docker")
    report = check_docker(SandboxConfig(image="no-such-image:1"))
    assert not report.usable and "no-such-image:1" in report.detail
    if not unusable("bubblewrap"):
        assert choose_kind(SandboxConfig(image="no-such-image:1")) == "bubblewrap"


def test_auto_stops_with_what_to_install(no_engine: None, no_bwrap: None) -> None:
    with pytest.raises(SandboxError) as caught:
        choose_kind(SandboxConfig())
    assert "no Docker engine answers" in caught.value.message and "bwrap" in caught.value.message
    assert "agent image build" in caught.value.hint and "apt-get install bubblewrap" in caught.value.hint
    assert not check_bubblewrap(SandboxConfig()).usable


def test_none_needs_consent_and_says_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        open_sandbox(SandboxConfig(kind="none"), SandboxSpec(workspace=tmp_path))
    assert "--i-understand-this-runs-model-code-on-my-machine" in caught.value.hint
    with closing(open_sandbox(SandboxConfig(kind="none", i_understand=True), SandboxSpec(workspace=tmp_path))) as box:
        assert "NOT A SANDBOX" in box.describe()


def test_only_known_deaths_count() -> None:
    mine = owner_labels()
    assert not is_abandoned(mine)
    with subprocess.Popen(["true"]) as child:
        child.wait()
    prefix = "org.cuda-agent."
    assert is_abandoned({**mine, f"{prefix}pid": str(child.pid)})
    assert is_abandoned({**mine, f"{prefix}boot": "another"})
    assert is_abandoned({**mine, f"{prefix}pid-start": "1"})
    assert not is_abandoned({**mine, f"{prefix}host": "another", f"{prefix}pid": str(child.pid)})
    assert not is_abandoned({})
    assert start_of(os.getpid()).isdigit() and start_of(child.pid) == ""


@pytest.mark.parametrize("kind", ["none", pytest.param("bubblewrap", marks=pytest.mark.bubblewrap)])
def test_folders_of_a_killed_process_are_swept(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_engine: None
) -> None:
    require(kind)
    if kind == "none" and os.getuid() != 0:
        pytest.skip("without a control group a process that left its group cannot be found again")
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    (scratch / "workspace").mkdir()
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from agent.config import SandboxConfig\n"
        "from agent.sandbox.base import SandboxSpec\n"
        "from agent.sandbox.open import open_sandbox\n"
        "spec = SandboxSpec(workspace=Path(sys.argv[2]), labels={'org.cuda-agent.run': 'killed'})\n"
        "box = open_sandbox(SandboxConfig(i_understand=True), spec, kind=sys.argv[1])\n"
        "print('open', flush=True)\n"
        "box.exec(['sleep', '61.5'], timeout_s=60)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, kind, str(scratch / "workspace")],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    assert child.stdout is not None and child.stdout.readline() == b"open\n"
    wait_for("sleep 61.5", True)
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    assert [(box.run, box.abandoned) for box in list_sandboxes()] == [("killed", False)]
    assert clean() == ()
    child.kill()
    child.wait()
    child.stdout.close()
    assert clean(older_than=timedelta(hours=1)) == ()
    assert [box.run for box in clean()] == ["killed"]
    assert list_sandboxes() == ()
    # bwrap dies with its parent and its namespace with it; without it the control group is what is found again.
    wait_for("sleep 61.5", False)


def wait_for(command: str, wanted: bool) -> None:
    deadline = time.monotonic() + 20
    while running(command) != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running(command) == wanted


def running(command: str) -> bool:
    return subprocess.run(["pgrep", "-f", f"^{command}"], capture_output=True).returncode == 0


@pytest.mark.docker
def test_the_sweep_touches_nothing_without_the_label(opener: Opener, tmp_path: Path) -> None:
    require("docker")
    mine = opener("docker")
    name = f"cuda-agent-bystander-{os.getpid()}"
    run = ["docker", "create", "--name", name, "cuda-agent-sandbox:cpu", "true"]
    other = subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip()
    try:
        assert other not in {box.id for box in list_sandboxes()}
        clean()
        assert subprocess.run(["docker", "inspect", other], capture_output=True).returncode == 0
        assert shell(mine, "true").ok
    finally:
        subprocess.run(["docker", "rm", "-f", other], capture_output=True, check=True)


def test_folders_that_merely_look_like_ours_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_engine: None
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name, text in (("empty", None), ("broken", "{"), ("list", "[]"), ("foreign", json.dumps({"a": 1}))):
        folder = tmp_path / f"cuda-agent-sandbox-{name}"
        folder.mkdir()
        if text is not None:
            (folder / "owner.json").write_text(text)
    (tmp_path / "cuda-agent-sandbox-link").symlink_to(tmp_path / "cuda-agent-sandbox-foreign")
    clean()
    assert len(os.listdir(tmp_path)) == 5


@pytest.mark.parametrize("kind", ["none", pytest.param("bubblewrap", marks=pytest.mark.bubblewrap)])
def test_the_interpreter_may_lie_below_tmp(tmp_path: Path, kind: str) -> None:
    """As it does for a checkout in /tmp, although /tmp is another folder for the commands."""
    require(kind)
    venv = Path("/tmp") / f"cuda-agent-test-{os.getpid()}-{kind}"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    try:
        config = SandboxConfig(kind=kind, i_understand=True, python=str(venv / "bin" / "python"))
        with closing(open_sandbox(config, SandboxSpec(workspace=tmp_path))) as sandbox:
            result = sandbox.exec([sandbox.python, "-I", "-c", "print(6 * 7)"], timeout_s=20)
        assert (result.exit_code, result.stdout.text()) == (0, "42\n")
    finally:
        shutil.rmtree(venv)

"""Docker sandboxes: the profile, quick errors, a container that dies, results that cannot be forged."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sandbox_kinds import SMALL, Opener, require, said, shell

from agent.errors import SandboxError
from agent.sandbox.base import Mount, SandboxSpec
from agent.sandbox.docker import DockerSandbox, open_docker
from agent.sandbox.engine import connect, has_image

DOCKERFILE = Path(__file__).parents[2] / "sandbox_image" / "Dockerfile"
pytestmark = pytest.mark.docker


@pytest.fixture
def engine() -> Iterator[Any]:
    require("docker")
    with closing(connect()) as client:
        yield client


def container_of(sandbox: Any) -> str:
    assert isinstance(sandbox, DockerSandbox)
    return sandbox.container_id


def test_the_profile_that_the_engine_was_given(engine: Any, opener: Opener) -> None:
    sandbox = opener("docker", labels={"org.cuda-agent.run": "r1"})
    about = engine.api.inspect_container(container_of(sandbox))
    host, config = about["HostConfig"], about["Config"]
    assert (host["NetworkMode"], host["CapDrop"], host["CapAdd"], host["Privileged"]) == ("none", ["ALL"], None, False)
    assert host["SecurityOpt"] == ["no-new-privileges:true"] and host["ReadonlyRootfs"] is True
    assert host["Memory"] == host["MemorySwap"] == SMALL.memory_bytes and host["PidsLimit"] == SMALL.pids
    assert host["ShmSize"] == SMALL.shm_bytes and host["IpcMode"] == "private" and host["AutoRemove"] is False
    assert "exec" in host["Tmpfs"]["/tmp"].split(",") and f"size={SMALL.tmp_bytes}" in host["Tmpfs"]["/tmp"]
    assert [m["Destination"] for m in about["Mounts"] if m["RW"]] == ["/workspace"]
    assert config["User"].split(":")[0] not in ("", "0")
    labels = config["Labels"]
    assert labels["org.cuda-agent.run"] == "r1" and labels["org.cuda-agent.pid"] == str(os.getpid())
    assert {"org.cuda-agent.host", "org.cuda-agent.boot"} <= set(labels)


def test_describe_names_engine_image_and_user(opener: Opener) -> None:
    text = opener("docker").describe()
    assert "unix://" in text and "cuda-agent-sandbox:cpu" in text and "no network" in text


def test_a_name_that_no_image_can_have_is_a_missing_image(engine: Any) -> None:
    assert not has_image(engine, "Not A Name::")


def test_a_missing_image_is_a_quick_error_with_the_command_that_makes_it(engine: Any, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(SandboxError, match=r"no-such-image:1 is not on this machine"):
        open_docker(SandboxSpec(workspace=tmp_path), image="no-such-image:1")
    with pytest.raises(SandboxError) as caught:
        open_docker(SandboxSpec(workspace=tmp_path), target="no-such-target")
    assert "agent image build" in caught.value.hint
    assert time.monotonic() - began < 5


def test_bad_mounts_are_quick_errors(engine: Any, tmp_path: Path) -> None:
    began = time.monotonic()
    for spec in (
        SandboxSpec(workspace=tmp_path / "missing"),
        SandboxSpec(workspace=tmp_path, mounts=(Mount(tmp_path / "nothing", "/opt/agent-tools"),)),
        SandboxSpec(workspace=tmp_path, mounts=(Mount(tmp_path, "relative"),)),
        SandboxSpec(workspace=tmp_path, mounts=(Mount(tmp_path, "/opt/../etc"),)),
    ):
        with pytest.raises(SandboxError):
            open_docker(spec)
    assert time.monotonic() - began < 5


def test_an_engine_that_does_not_answer_is_a_quick_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    with pytest.raises(SandboxError, match="no Docker engine answers") as caught:
        open_docker(SandboxSpec(workspace=tmp_path))
    assert caught.value.hint


def test_a_container_killed_from_outside_is_a_dead_sandbox(engine: Any, opener: Opener) -> None:
    sandbox = opener("docker")
    killer = subprocess.Popen(
        ["sh", "-c", f"sleep 0.5; docker kill {container_of(sandbox)}"], stdout=subprocess.DEVNULL
    )
    with pytest.raises(SandboxError) as caught:
        shell(sandbox, "echo partial; sleep 60")
    assert killer.wait() == 0
    assert "ExitCode: 137" in caught.value.post_mortem and not caught.value.oom
    for use in (lambda: shell(sandbox, "true"), lambda: sandbox.read("x", limit=1), lambda: sandbox.write("x", b"")):
        with pytest.raises(SandboxError, match="gone"):
            use()
    assert engine.containers.list(all=True, filters={"id": container_of(sandbox)}) == []


def test_the_death_of_pid_1_is_a_dead_sandbox(engine: Any, opener: Opener) -> None:
    sandbox = opener("docker")
    os.kill(engine.api.inspect_container(container_of(sandbox))["State"]["Pid"], signal.SIGKILL)
    with pytest.raises(SandboxError):
        shell(sandbox, "true")


def test_a_removed_container_is_a_dead_sandbox(engine: Any, opener: Opener) -> None:
    sandbox = opener("docker")
    engine.api.remove_container(container_of(sandbox), force=True)
    with pytest.raises(SandboxError) as caught:
        shell(sandbox, "true")
    assert caught.value.post_mortem
    sandbox.close()


def test_a_paused_container_runs_into_the_hosts_deadline(
    engine: Any, opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.sandbox.process.HOST_MARGIN_S", -4.0)
    sandbox = opener("docker")
    engine.api.pause(container_of(sandbox))
    with pytest.raises(SandboxError, match="does not answer"):
        shell(sandbox, "true", timeout_s=0.5)
    assert engine.containers.list(all=True, filters={"id": container_of(sandbox)}) == []


def test_close_removes_the_container_and_returns_when_the_engine_hangs(
    engine: Any, opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = opener("docker")
    sandbox.close()
    assert engine.containers.list(all=True, filters={"id": container_of(sandbox)}) == []
    hanging = opener("docker")
    monkeypatch.setattr("agent.sandbox.docker.REMOVE_TIMEOUT_S", 0.5)
    dockerd = engine_process()
    os.kill(dockerd, signal.SIGSTOP)
    try:
        began = time.monotonic()
        hanging.close()
        assert time.monotonic() - began < 5
    finally:
        os.kill(dockerd, signal.SIGCONT)


def engine_process() -> int:
    found = subprocess.run(["pgrep", "-x", "dockerd"], capture_output=True, text=True).stdout.split()
    if len(found) != 1 or os.getuid() != 0:
        pytest.skip("the engine's process cannot be stopped here")
    return int(found[0])


def test_pid_1_can_be_neither_read_nor_written_by_a_command(opener: Opener) -> None:
    sandbox = opener("docker")
    program = (
        "import os\n"
        "for name in ('mem', 'fd/1', 'environ', 'maps'):\n"
        "    try: open(f'/proc/1/{name}', 'wb' if name in ('mem', 'fd/1') else 'rb'); print('open', name)\n"
        "    except OSError as error: print(error.strerror)\n"
    )
    assert set(said(sandbox.exec(["python3", "-c", program], timeout_s=20)).splitlines()) == {"Permission denied"}
    # What looks like a frame of the runner is output like any other.
    forged = r"printf 'r\0\0\0\002{}' ; printf 'r\0\0\0\002{}' >&2"
    result = shell(sandbox, forged + "; exit 5")
    assert (result.exit_code, result.stdout.head) == (5, b"r\0\0\0\x02{}")


def test_an_interrupted_command_ends_and_the_sandbox_goes_on(opener: Opener) -> None:
    sandbox = opener("docker")

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(KeyboardInterrupt):
            shell(sandbox, "echo started; sleep 60")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert said(shell(sandbox, "pgrep -c sleep || true")) == "0"


def test_a_killed_agent_leaves_no_running_container(engine: Any, tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from agent.sandbox.base import SandboxSpec\n"
        "from agent.sandbox.docker import open_docker\n"
        "box = open_docker(SandboxSpec(workspace=Path(sys.argv[1])))\n"
        "print(box.container_id, flush=True)\n"
        "box.exec(['sleep', '60'], timeout_s=60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    container = child.stdout.readline().strip()
    child.kill()
    child.wait()
    child.stdout.close()
    engine.api.wait(container, timeout=20)
    assert engine.api.inspect_container(container)["State"]["Status"] == "exited"
    from agent.sandbox.orphans import clean, list_sandboxes

    assert [box.abandoned for box in list_sandboxes() if box.id == container] == [True]
    assert container in {box.id for box in clean()}
    assert engine.containers.list(all=True, filters={"id": container}) == []


def test_a_full_tmp_can_be_emptied_again(opener: Opener) -> None:
    sandbox = opener("docker")
    assert "No space left" in shell(sandbox, "head -c 2G /dev/zero > /tmp/full").stderr.text()
    with pytest.raises(OSError, match="no space left"):
        sandbox.write("/tmp/one-more", b"x" * 4096)
    assert said(shell(sandbox, "rm /tmp/full; echo emptied")) == "emptied"
    sandbox.write("/tmp/one-more", b"x" * 4096)


def test_the_workspace_belongs_to_the_sandboxs_user(opener: Opener, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir(mode=0o700)
    (workspace / "model.py").write_text("old")
    (workspace / "outside").symlink_to("/etc/passwd")
    owner = Path("/etc/passwd").stat().st_uid
    sandbox = opener("docker", workspace=workspace)
    sandbox.write("kernels/a.cpp", b"old")
    assert (
        said(shell(sandbox, "echo new > model.py; echo new > kernels/a.cpp; touch kernels/b.cpp; cat model.py"))
        == "new"
    )
    assert Path("/etc/passwd").stat().st_uid == owner


def test_an_ordinary_user_keeps_the_own_ids(opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    if os.getuid() == 0:
        os.chown(workspace, 23456, 23457)
        monkeypatch.setattr("os.getuid", lambda: 23456)
        monkeypatch.setattr("os.getgid", lambda: 23457)
    sandbox = opener("docker", workspace=workspace)
    assert said(shell(sandbox, "echo x > f; echo $(id -u):$(id -g) $(stat -c %u:%g f)")) == "{0} {0}".format(
        f"{os.getuid()}:{os.getgid()}"
    )
    user = "import getpass, os; print(getpass.getuser(), os.path.expanduser('~'))"
    assert said(sandbox.exec(["python3", "-c", user], timeout_s=20)) == "agent /tmp/home"


def test_commands_keep_the_images_tools_on_their_path(opener: Opener) -> None:
    sandbox = opener("docker")
    for command in (["bash", "-lc"], ["bash", "-c"], ["sh", "-c"]):
        find = "for name in python ninja g++; do command -v $name; done"
        which = said(sandbox.exec([*command, find], timeout_s=20)).splitlines()
        assert which == ["/opt/venv/bin/python", "/opt/venv/bin/ninja", "/usr/bin/g++"]
    version = "import importlib.metadata as m; print(m.version('torch').split('+')[0])"
    assert f"torch=={said(sandbox.exec([sandbox.python, '-c', version], timeout_s=60))}" in DOCKERFILE.read_text()

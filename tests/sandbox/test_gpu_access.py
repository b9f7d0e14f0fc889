"""How a sandbox gets GPUs, and what the configuration shows of the machine: choices, engine arguments, real mounts."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sandbox_kinds import CONFINED, SMALL, require, said, shell

from agent.config import SandboxConfig, load_config
from agent.errors import ConfigError, SandboxError
from agent.sandbox.base import Mount, SandboxSpec
from agent.sandbox.gpu import DRIVER, docker_access, driver_files, node_access
from agent.sandbox.open import open_sandbox, with_machine

TOOLKIT = {"Runtimes": {"runc": {}, "nvidia": {}}}
CDI = {"Runtimes": {"runc": {}}, "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=all"}]}


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    """A /dev with two GPUs; its entries are real character devices."""
    folder = tmp_path / "dev"
    folder.mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (folder / name).symlink_to("/dev/null")
    (folder / "nvidia-caps").mkdir()
    return folder


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "driver"
    folder.mkdir()
    for name in ("libcuda.so.580.1", "libnvidia-ml.so.580.1", "libnvidia-gpucomp.so.580.1", "libGLX_nvidia.so.0"):
        (folder / name).write_bytes(b"")
    (folder / "libcuda.so.1").symlink_to("libcuda.so.580.1")
    (folder / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.1")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"relative:{folder}")
    return folder


def test_auto_takes_the_toolkit_then_cdi() -> None:
    (request,) = docker_access("auto", {**CDI, **TOOLKIT}).docker_options()["device_requests"]
    assert (request["Count"], request["Capabilities"]) == (-1, [["gpu"]])
    (request,) = docker_access("auto", CDI).docker_options()["device_requests"]
    assert (request["Driver"], request["DeviceIDs"]) == ("cdi", ["nvidia.com/gpu=all"])
    (request,) = docker_access("cdi", {**CDI, **TOOLKIT}).docker_options()["device_requests"]
    assert request["Driver"] == "cdi"


def test_an_older_engine_says_only_where_cdi_files_lie(tmp_path: Path) -> None:
    engine = {"CDISpecDirs": [str(tmp_path), "/nonexistent"]}
    with pytest.raises(SandboxError) as caught:
        docker_access("cdi", engine)
    assert "nvidia-ctk cdi generate" in caught.value.hint
    (tmp_path / "nvidia.yaml").write_text('cdiVersion: "0.5.0"\nkind: nvidia.com/gpu\n')
    assert docker_access("cdi", engine).way == "cdi"


def test_a_way_that_cannot_work_is_refused_with_what_to_do() -> None:
    with pytest.raises(SandboxError) as caught:
        docker_access("toolkit", {"Runtimes": {"runc": {}}})
    assert "nvidia-container-toolkit" in caught.value.hint


def test_nodes_bring_the_driver_where_nothing_else_shows_it(dev: Path, driver: Path) -> None:
    access = node_access(visible=(), dev=dev)
    assert [node.name for node in access.nodes] == ["nvidia-uvm", "nvidia0", "nvidia1", "nvidiactl"]
    assert access.docker_options()["devices"][1] == f"{dev}/nvidia0:{dev}/nvidia0:rw"
    shown = {mount.target: mount.source.name for mount in access.mounts if mount.source.parent == driver}
    assert shown == {
        f"{DRIVER}/libcuda.so.1": "libcuda.so.580.1",
        f"{DRIVER}/libnvidia-ml.so.1": "libnvidia-ml.so.580.1",
        f"{DRIVER}/libnvidia-gpucomp.so.580.1": "libnvidia-gpucomp.so.580.1",
    }
    assert all(mount.read_only for mount in access.mounts) and access.env == {"LD_LIBRARY_PATH": DRIVER}
    assert {path.name for path in driver_files()} >= {"libcuda.so.1", "libnvidia-ml.so.1"}
    visible = node_access(visible=(driver, Path("/usr"), Path("/lib")), dev=dev)
    assert (visible.mounts, dict(visible.env)) == ((), {})


def test_no_gpu_is_said(tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").symlink_to("/dev/null")  # a driver without a device
    with pytest.raises(SandboxError) as caught:
        node_access(visible=(), dev=tmp_path)
    assert "no nvidia devices" in caught.value.message and "--target cpu" in caught.value.hint


def test_settings_of_the_machine_are_checked() -> None:
    wanted = ('sandbox.mounts=["/opt/gcc", "/data:/mnt/data"]', 'sandbox.env=["CUDA_HOME=/usr/local/cuda"]')
    config = load_config(settings=(*wanted, "sandbox.gpu=nodes")).sandbox
    assert (config.mounts, config.env, config.gpu) == (
        ("/opt/gcc", "/data:/mnt/data"),
        ("CUDA_HOME=/usr/local/cuda",),
        "nodes",
    )
    for wrong in ('sandbox.mounts=["opt"]', 'sandbox.mounts=["/a:b"]', 'sandbox.env=["no value"]', "sandbox.gpu=cuda"):
        with pytest.raises(ConfigError):
            load_config(settings=[wrong])


def test_a_folder_around_our_own_mounts_is_shown_entry_by_entry(tmp_path: Path) -> None:
    machine = tmp_path / "opt"
    for name in ("gcc", "agent-tools"):
        (machine / name).mkdir(parents=True)
    config = SandboxConfig(mounts=(f"{machine}:/opt", "/usr"), env=("A=1", "B=x=y"))
    spec = SandboxSpec(workspace=tmp_path, mounts=(Mount(tmp_path, "/opt/agent-tools"),), env={"A": "2"})
    made = with_machine(config, spec)
    assert [(mount.source, mount.target) for mount in made.system] == [
        (machine / "gcc", "/opt/gcc"),
        (Path("/usr"), "/usr"),
    ]
    assert made.env == {"A": "2", "B": "x=y"}


@pytest.mark.parametrize("kind", CONFINED)
def test_the_machines_folders_and_variables_inside(kind: str, tmp_path: Path) -> None:
    require(kind)
    for folder in ("workspace", "tools", "machine/compiler"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "machine" / "compiler" / "version").write_text("13\n")
    tmp_path.chmod(0o755)
    config = SandboxConfig(mounts=(f"{tmp_path}/machine:/opt",), env=("COMPILER=/opt/compiler",))
    spec: dict[str, Any] = {"workspace": tmp_path / "workspace", "limits": SMALL}
    made = SandboxSpec(mounts=(Mount(tmp_path / "tools", "/opt/agent-tools"),), **spec)
    with closing(open_sandbox(config, made, kind=kind)) as sandbox:
        assert said(shell(sandbox, "cat $COMPILER/version; ls -d /opt/agent-tools")) == "13\n/opt/agent-tools"
        assert said(shell(sandbox, "touch /opt/compiler/x 2>/dev/null || echo refused")) == "refused"

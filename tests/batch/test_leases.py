"""A device is held by one measurement at a time, on the whole machine."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.batch.leases import DevicePool, device_of, gpu_uuids
from agent.cli import main
from agent.config import load_config
from agent.errors import ConfigError, SandboxError
from agent.loop.waiting import Interrupted


def stay() -> bool:
    return False


def test_jobs_take_turns_and_count_their_waiting(tmp_path: Path) -> None:
    pools = [DevicePool(("cpu",), folder=tmp_path) for _ in range(2)]
    devices = [pool.for_job() for pool in pools for _ in range(2)]
    inside: list[int] = []
    most: list[int] = []

    def measure(index: int) -> None:
        with devices[index].lease(leave=stay):
            inside.append(index)
            most.append(len(inside))
            time.sleep(0.05)
            inside.remove(index)

    threads = [threading.Thread(target=measure, args=(index,)) for index in range(len(devices))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1, 1]
    assert all(device.held_s > 0.04 for device in devices)
    assert sum(device.waited_s > 0.03 for device in devices) >= 2


# What the driver's tool prints: a line per GPU, and an error where one is lost. `lost` beside it names those.
NVIDIA_SMI = """\
#!/bin/sh
here=$(dirname "$0")
all="0, GPU-aa11
1, GPU-bb22
2, GPU-cc33"
case "$1" in
-i) if grep -qs "$2" "$here/lost"; then
      echo "Unable to determine the device handle for GPU0000:01:00.0: GPU is lost."
      exit 15
    fi
    echo "$2" ;;
*) echo "$all" ;;
esac
"""
Tool = Callable[..., None]


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Installs the tool of a machine with three GPUs; called again, it changes what the tool says."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CUDA_AGENT_CACHE", str(tmp_path / "cache"))

    def install(script: str = NVIDIA_SMI, *, lost: str = "") -> None:
        (folder / "nvidia-smi").write_text(script)
        (folder / "nvidia-smi").chmod(0o755)
        (folder / "lost").write_text(lost)

    install()
    return install


def test_the_gpus_of_a_machine(nvidia_smi: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert DevicePool.of_machine("cuda").names == ("GPU-aa11", "GPU-bb22", "GPU-cc33")
    assert DevicePool.of_machine("cpu").names == ("cpu",)
    for visible, names in (("1,GPU-aa", ("GPU-aa11", "GPU-bb22")), ("2", ("GPU-cc33",))):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert DevicePool.of_machine("cuda").names == names
        assert len(gpu_uuids()) == 3
    for visible in ("", "7"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        with pytest.raises(SandboxError, match="names none of this machine's GPUs"):
            DevicePool.of_machine("cuda")


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 9\n", "#!/bin/sh\necho 'No devices were found'\n", "no program"])
def test_a_machine_without_gpus(nvidia_smi: Tool, script: str) -> None:
    nvidia_smi(script)
    with pytest.raises(SandboxError, match="lists no GPU"):
        DevicePool.of_machine("cuda")


def test_every_gpu_is_held_once_and_its_holder_is_told_which(nvidia_smi: Tool) -> None:
    pools = [DevicePool.of_machine("cuda") for _ in range(2)]
    inside: list[str] = []
    most: list[int] = []

    def measure(pool: DevicePool) -> None:
        device = pool.for_job()
        for _ in range(3):
            with device.lease(leave=stay) as variables:
                assert variables == {"CUDA_VISIBLE_DEVICES": device.name}
                assert device.name not in inside
                inside.append(device.name)
                most.append(len(inside))
                time.sleep(0.05)
                inside.remove(device.name)

    threads = [threading.Thread(target=measure, args=(pools[index % 2],)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 18
    assert 2 <= max(most) <= 3


def test_whoever_finds_all_gpus_held_leaves_when_asked(nvidia_smi: Tool) -> None:
    pool, other = DevicePool.of_machine("cuda"), DevicePool.of_machine("cuda")
    with pool.hold(stay) as first, pool.hold(stay) as second, other.hold(stay) as third:
        assert {first, second, third} == set(pool.names)
        asked = iter([False, False, True, True])
        with pytest.raises(Interrupted), other.hold(lambda: next(asked)):
            pass


def test_a_gpu_that_is_lost_is_passed_over(nvidia_smi: Tool) -> None:
    pool = DevicePool.of_machine("cuda")
    nvidia_smi(lost="GPU-aa11 GPU-cc33")
    for _ in range(4):
        with pool.hold(stay) as name:
            assert name == "GPU-bb22"
    nvidia_smi(lost="GPU-aa11 GPU-bb22 GPU-cc33")
    with pytest.raises(SandboxError, match="no device answers: GPU-aa11, GPU-bb22, GPU-cc33"), pool.hold(stay):
        pass


def test_a_judgement_on_a_gpu_leases_one(nvidia_smi: Tool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nvidia_smi(lost="GPU-aa11 GPU-bb22 GPU-cc33")
    config = load_config(flags={"judge.target": "cuda", "sandbox.kind": "bubblewrap"})
    with pytest.raises(SandboxError, match="no device answers"), device_of(config):
        pass
    example = Path(__file__).parents[2] / "examples" / "gelu-bias-residual"
    submission = str(example / "run" / "best" / "model_new.py")
    options = ("--target", "cuda", "--sandbox", "bubblewrap", "--json")
    assert main(["judge", str(example / "model.py"), submission, *options]) == 3
    (reason,) = json.loads(capsys.readouterr().out)["reasons"]
    assert reason["code"] == "runtime.infrastructure"
    nvidia_smi()
    with device_of(config) as variables:
        assert variables["CUDA_VISIBLE_DEVICES"].startswith("GPU-")


def test_whoever_wants_to_leave_does_not_wait(tmp_path: Path) -> None:
    pool = DevicePool(("cpu",), folder=tmp_path)
    with pool.for_job().lease(leave=stay):
        waiting = pool.for_job()
        asked = iter([False, True, True])
        with pytest.raises(Interrupted), waiting.lease(leave=lambda: next(asked)):
            pass
        assert waiting.held_s == 0.0
    with pool.for_job().lease(leave=stay):
        pass


def test_a_killed_holder_frees_it(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from agent.batch.leases import DevicePool\n"
        f"with DevicePool(('cpu',), folder=Path({str(tmp_path)!r})).hold(lambda: False):\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    pool = DevicePool(("cpu",), folder=tmp_path)
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        deadline = time.monotonic() + 0.3
        with pytest.raises(Interrupted), pool.hold(lambda: time.monotonic() > deadline):
            pass
        holder.kill()
    with pool.hold(stay) as name:
        assert name == "cpu"


def test_a_folder_that_cannot_be_made_is_said() -> None:
    with pytest.raises(ConfigError, match="CUDA_AGENT_CACHE"):
        DevicePool(("cpu",), folder=Path("/proc/leases"))

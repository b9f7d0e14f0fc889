"""A device is held by one measurement at a time, on the whole machine."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from agent.batch.leases import DevicePool
from agent.errors import ConfigError
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


def test_several_devices_are_held_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.batch.leases.is_healthy", lambda name: True)
    pool = DevicePool(("GPU-1", "GPU-2"), folder=tmp_path)
    with pool.hold(stay) as first, pool.hold(stay) as second:
        assert {first, second} == {"GPU-1", "GPU-2"}
        with pytest.raises(Interrupted), pool.hold(lambda: True):
            pass


def test_a_gpu_that_does_not_answer_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.batch.leases.is_healthy", lambda name: name == "GPU-2")
    pool = DevicePool(("GPU-1", "GPU-2"), folder=tmp_path)
    for _ in range(4):
        with pool.hold(stay) as name:
            assert name == "GPU-2"


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

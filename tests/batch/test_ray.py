"""Collections on a real Ray cluster of several nodes: nodes, workers and drivers are killed, and nothing is lost."""

import contextlib
import itertools
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent import __version__
from agent.batch.collect import CollectRequest, run_collect
from agent.batch.executor import Done, Job, Moved, alone
from agent.batch.faults import Fault
from agent.batch.local import LocalExecutor
from agent.batch.ray_device import job_device
from agent.batch.ray_executor import RayExecutor
from agent.batch.ray_worker import run_names, run_on_node
from agent.batch.tail import RunTail
from agent.config import Config, load_config
from agent.errors import ConfigError, SandboxError
from agent.loop.waiting import Interrupted
from agent.sandbox.open import check_bubblewrap
from agent.tasks.task import load_task
from agent.trajectory.events import ActionEvent, ReplyEvent, StopReason
from agent.trajectory.folder import RunFolder
from agent.trajectory.stored import find_runs, read_ending

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.bubblewrap, pytest.mark.torch]
ROOT = Path(__file__).resolve().parent.parent.parent
GELU = ROOT / "tests" / "loop" / "gelu" / "model.py"
PATIENCE_S = 240.0
STORE_BYTES = 100 << 20
SCRIPT = """\
---
author: hand-written
target: cpu
task: model.py
---
## Turn 1
```action bash
echo it has begun; {waits}
```
## Turn 2
```action submit summary="nothing to show"
```
"""


GATE = "until [ -e go ]; do sleep 0.1; done"


@dataclass
class Nodes:
    """A cluster: a head without sandboxes, and nodes that come and go."""

    cluster: Any

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def add(self, **more: Any) -> Any:
        settings: dict[str, Any] = {"num_cpus": 1, "object_store_memory": STORE_BYTES, "include_dashboard": False}
        settings |= {"resources": {"sandbox": 2}} | more
        try:
            return self.cluster.add_node(**settings)
        except Exception as error:  # Ray gives a node 30 seconds, a busy machine needs more
            if "timed out during startup" not in str(error):
                raise
            return self.cluster.add_node(**settings)

    def raylet(self, node: Any) -> int:
        """The process that the node's workers are children of."""
        return int(node.all_processes["raylet"][0].process.pid)

    def kill(self, node: Any) -> None:
        self.cluster.remove_node(node, allow_graceful=False)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    report = check_bubblewrap(Config().sandbox)
    if not report.usable:
        pytest.skip(f"bubblewrap cannot be used here: {report.detail}")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("MAX_JOBS", "2")
        head = {"num_cpus": 1, "object_store_memory": STORE_BYTES, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            yield Nodes(cluster)
        finally:
            cluster.shutdown()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Two tasks that other tests judge as well, and a script of two turns; the first ends when its gate is opened."""
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "gelu.py").write_bytes(GELU.read_bytes())
    (tasks / "softmax.py").write_bytes((ROOT / "examples" / "softmax-scale-mask" / "model.py").read_bytes())
    (tmp_path / "turns.md").write_text(SCRIPT.format(waits=GATE))
    return tmp_path


def request(work: Path, nodes: Nodes) -> CollectRequest:
    flags = {"backend.script": str(work / "turns.md"), "sandbox.kind": "bubblewrap", "judge.target": "cpu"}
    return CollectRequest(
        tasks=str(work / "tasks"),
        output=work / "out",
        samples=2,
        executor="ray",
        ray_address=nodes.address,
        flags=flags,
        plain=True,
    )


def job(work: Path, seconds: int, **more: Any) -> Job:
    script = work / "long.md"
    script.write_text(SCRIPT.format(waits=f"sleep {seconds}"))
    settings = [f"backend.script={script}", "sandbox.kind=bubblewrap", "judge.target=cpu"]
    folder = work / "sample"
    return Job(task=load_task(GELU), sample=0, attempt=0, folder=folder, config=load_config(settings=settings), **more)


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.1)


def sleeping(work: Path) -> int:
    """How many runs there are whose first command goes on."""
    logs = [run.events.read_bytes() for run in find_runs([work]) if run.events.exists()]
    return sum(b'"type":"action"' in log and b'"type":"observation"' not in log for log in logs)


def processes(*titles: str) -> list[psutil.Process]:
    """Those whose title begins so."""
    found = psutil.process_iter(["cmdline"])
    return [process for process in found if " ".join(process.info["cmdline"] or ()).startswith(titles)]


def workers() -> list[psutil.Process]:
    """The processes that run episodes now; Ray gives them the name of their task."""
    return processes("ray::gelu#", "ray::softmax#")


def settled(work: Path) -> dict[str, int]:
    """Sample folder -> how many of its runs have a verdict that stays."""
    counts: dict[str, int] = {}
    for run in find_runs([work / "out"]):
        ending = read_ending(run)
        name = str(run.path.parent.relative_to(work / "out" / "tasks"))
        counts[name] = counts.get(name, 0) + bool(ending and ending.settled)
    return counts


def faults(work: Path) -> list[str]:
    return [json.loads(line)["error"] or "" for line in (work / "out" / "attempts.jsonl").read_text().splitlines()]


@contextlib.contextmanager
def meanwhile(work: Path, act: Callable[[], None] = lambda: None) -> Iterator[None]:
    """`act` in a thread while every first turn goes on, however slow the machine is; then all gates are opened.

    What it raises is raised at the end.
    """
    errors: list[BaseException] = []
    over = threading.Event()

    def run() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)
        while not over.wait(0.1):
            for run in find_runs([work]):
                with contextlib.suppress(FileNotFoundError):  # a run that never began is removed
                    (run.path / "workspace" / "go").touch()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if errors:
        raise errors[0]


def test_a_cluster_that_offers_nothing_is_said_so(nodes: Nodes) -> None:
    with pytest.raises(ConfigError, match=r"no node .* offers sandboxes .*--resources"):
        RayExecutor(nodes.address)
    node = nodes.add()
    try:
        with pytest.raises(ConfigError, match="has a GPU"):
            RayExecutor(nodes.address, cuda=True)
    finally:
        nodes.kill(node)
    with pytest.raises(SandboxError, match=r"no Ray cluster answers at 127\.0\.0\.1:1"):
        RayExecutor("127.0.0.1:1")
    for address in ("ray://127.0.0.1:10001", "nowhere", ":", "host:port"):
        with pytest.raises(ConfigError, match="--ray-address"):
            RayExecutor(address)


def test_a_lost_node_costs_no_episode(nodes: Nodes, work: Path) -> None:
    there = [nodes.add(), nodes.add()]

    def kill() -> None:
        wait_until(lambda: sleeping(work) >= 2)
        parent = workers()[0].ppid()
        victims = [worker for worker in workers() if worker.ppid() == parent]
        lost = next(node for node in there if nodes.raylet(node) == parent)
        there.remove(lost)
        nodes.kill(lost)
        _, left = psutil.wait_procs(victims, timeout=PATIENCE_S)  # else they might come to a verdict on their own
        assert not left

    try:
        with meanwhile(work, kill):
            assert run_collect(request(work, nodes)) == 0
    finally:
        for node in there:
            nodes.kill(node)
    assert list(settled(work).values()) == [1] * 4
    assert faults(work).count("worker") >= 1
    assert faults(work).count("") == 4


def test_killed_workers_cost_no_episode(nodes: Nodes, work: Path) -> None:
    node = nodes.add()

    def kill() -> None:
        for _ in range(2):
            wait_until(lambda: sleeping(work) >= 1 and bool(workers()))
            victim = workers()[0]
            victim.kill()
            gone, _ = psutil.wait_procs([victim], timeout=PATIENCE_S)
            assert gone

    try:
        with meanwhile(work, kill):
            assert run_collect(request(work, nodes)) == 0
    finally:
        nodes.kill(node)
    assert list(settled(work).values()) == [1] * 4
    assert faults(work).count("worker") == 2
    assert faults(work).count("") == 4


def test_a_killed_driver_is_followed_by_another(nodes: Nodes, work: Path) -> None:
    node = nodes.add()
    code = "import pickle, sys; from agent.batch.collect import run_collect; run_collect(pickle.load(sys.stdin.buffer))"
    try:
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, cwd=work) as driver:
            assert driver.stdin is not None
            driver.stdin.write(pickle.dumps(request(work, nodes)))
            driver.stdin.close()
            wait_until(lambda: sleeping(work) >= 1)
            driver.kill()
        assert sum(settled(work).values()) < 4
        with meanwhile(work):
            assert run_collect(request(work, nodes)) == 0
    finally:
        nodes.kill(node)
    assert list(settled(work).values()) == [1] * 4
    assert len(list(find_runs([work / "out"]))) == 4


def test_a_wish_reaches_the_worker_and_its_progress_the_driver(
    nodes: Nodes, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the switch hangs when it is told, and is gone then."""
    node = nodes.add()
    executor = RayExecutor(nodes.address)
    monkeypatch.setattr("agent.batch.ray_executor.CONTROL_TIMEOUT_S", 1.0)
    try:
        wait_until(lambda: executor.slots == 2)
        executor.submit(job(work, 300))
        seen = [report_of(executor)]
        while not (isinstance(seen[-1], Moved) and isinstance(seen[-1].event, ActionEvent)):
            seen.append(report_of(executor))
        assert seen[-1].status is not None
        assert (seen[-1].status.phase, seen[-1].status.detail, seen[-1].status.turn) == ("acting", "bash", 1)
        assert any(isinstance(report.event, ReplyEvent) for report in seen if isinstance(report, Moved))
        wait_until(lambda: bool(processes("ray::Switch")))  # nobody has needed it yet
        (switch,) = processes("ray::Switch")
        switch.suspend()
        executor.stop(judge=True)
        switch.kill()
        while isinstance(seen[-1], Moved):
            seen.append(report_of(executor))
    finally:
        executor.close()
        nodes.kill(node)
    done = seen[-1]
    assert isinstance(done, Done)
    assert (done.outcome, done.reason, done.fault) == ("settled", StopReason.CANCELLED, None), done
    (run,) = find_runs([work])
    assert run.path == done.run
    executor.close()
    assert executor.next_report(timeout_s=0) is None


def test_what_a_closed_executor_leaves_can_be_gone_on_with(nodes: Nodes, work: Path) -> None:
    node = nodes.add()
    executor = RayExecutor(nodes.address, workers=1)
    try:
        assert executor.slots == 1
        executor.submit(job(work, 300))
        wait_until(lambda: isinstance(executor.next_report(timeout_s=1), Moved) and sleeping(work) == 1)
    finally:
        executor.close()
        nodes.kill(node)
    done = executor.next_report(timeout_s=0)
    while isinstance(done, Moved):
        done = executor.next_report(timeout_s=0)
    assert isinstance(done, Done)
    assert (done.outcome, done.fault) == ("left", None), done
    assert done.run is not None
    assert read_ending(RunFolder(done.run)) is None


def test_every_gpu_of_a_node_is_leased_to_one_episode_at_a_time(nodes: Nodes, tmp_path: Path) -> None:
    node = nodes.add(num_gpus=2, resources={"sandbox": 3})
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\ncase "$1" in -i) echo "$2" ;; *) echo "0, GPU-a"; echo "1, GPU-b" ;; esac\n')
    tool.chmod(0o755)
    told = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CUDA_AGENT_CACHE": str(tmp_path / "cache")}
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR", runtime_env={"env_vars": told})
    try:

        def measure(name: str) -> tuple[str, float, float, float]:
            gpu = job_device(load_config(settings=["judge.target=cuda"]))
            with gpu.lease(leave=lambda: False) as variables:
                began = time.monotonic()
                time.sleep(1.0)
                return variables["CUDA_VISIBLE_DEVICES"], began, time.monotonic(), gpu.waited_s

        def give_up() -> str:
            gpu = job_device(load_config(settings=["judge.target=cuda"]))
            with gpu.lease(leave=lambda: False), gpu.lease(leave=lambda: False):
                with contextlib.suppress(Interrupted), gpu.lease(leave=lambda: True):
                    return "three leases of two GPUs"
                return "interrupted"

        task = ray.remote(num_cpus=0, resources={"sandbox": 1})
        spans = ray.get([task(measure).remote(name) for name in "abc"], timeout=PATIENCE_S)
        assert {name for name, *_ in spans} <= {"GPU-a", "GPU-b"}
        for name in ("GPU-a", "GPU-b"):
            own = sorted((began, ended) for gpu, began, ended, _ in spans if gpu == name)
            assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(own))
        assert max(waited_s for *_, waited_s in spans) >= 0.5
        assert ray.get(task(give_up).remote(), timeout=PATIENCE_S) == "interrupted"
    finally:
        ray.shutdown()
        nodes.kill(node)


def test_a_sample_has_one_worker_and_a_run_it_began_unseen_is_not_made_again(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = job(work, 0)
    with alone(one.folder) as free:
        assert free
        code = (
            "import sys; from pathlib import Path; from agent.batch.executor import alone\n"
            "with alone(Path(sys.argv[1]), patience_s=0.5) as free: print(free)"
        )
        other = subprocess.run([sys.executable, "-c", code, str(one.folder)], capture_output=True, text=True, cwd=ROOT)
        assert other.stdout == "False\n", other.stderr
        local = LocalExecutor(1, jitter_s=0)
        local.submit(one)
        busy = local.next_report(timeout_s=60)
        assert isinstance(busy, Done) and (busy.outcome, busy.fault, busy.run) == ("left", Fault.BUSY, None)
        monkeypatch.setattr("agent.batch.ray_worker.LOCK_PATIENCE_S", 0.5)
        assert run_on_node(one, known=frozenset(), version=__version__, switch="none") == busy
    shutil.copytree(ROOT / "examples" / "gelu-bias-residual" / "run", one.folder / "2026-01-01T0000-unseen-0")
    done = run_on_node(one, known=frozenset(), version=__version__, switch="none")
    assert (done.outcome, done.run) == ("settled", one.folder / "2026-01-01T0000-unseen-0")
    assert run_on_node(one, known=run_names(one.folder), version=__version__, switch="none") == done
    assert done.reward is not None
    assert done.turns and done.seconds, "the list of attempts is believed later"


def test_another_version_on_a_node_is_a_setup_fault(work: Path) -> None:
    done = run_on_node(job(work, 0), known=frozenset(), version="0.0.0", switch="none")
    assert (done.outcome, done.fault) == ("left", Fault.SETUP)
    assert f"a node has cuda-agent {__version__}, the driver 0.0.0" in done.detail


def test_a_run_is_followed_from_where_it_was(work: Path) -> None:
    run = work / "sample" / "run"
    shutil.copytree(ROOT / "examples" / "gelu-bias-residual" / "run", run)
    lines = (run / "events.jsonl").read_bytes().splitlines(keepends=True)
    (run / "events.jsonl").write_bytes(b"".join(lines[:5]) + lines[5][:10])
    resumed = RunTail(work / "sample", run=run, known=frozenset({"run"}))
    begun = RunTail(work / "sample", run=None, known=frozenset())
    assert [event.seq for _, event in begun.read()] == list(range(5))
    assert list(resumed.read()) == []
    (run / "events.jsonl").write_bytes(b"".join(lines[:7]))
    assert [(path, event.seq) for path, event in resumed.read()] == [(run, 5), (run, 6)]
    assert [event.seq for _, event in begun.read()] == [5, 6]
    assert list(RunTail(work / "nothing", run=None, known=frozenset()).read()) == []


def report_of(executor: RayExecutor) -> Done | Moved:
    deadline = time.monotonic() + PATIENCE_S
    while (report := executor.next_report(timeout_s=1)) is None:
        assert time.monotonic() < deadline, "no report came"
    return report

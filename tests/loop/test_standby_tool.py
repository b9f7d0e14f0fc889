"""A tool that stands by: for one submission, gone without a trace afterwards; its trouble scores nothing."""

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from stand_ins import Turns, call, reply

from agent.config import Config, load_config
from agent.judging.cache import warm
from agent.judging.judge import judge_submission
from agent.judging.reports import ProfileReport, Verdict, VerifyReport
from agent.judging.tool_runs import NoReport, Rules
from agent.loop.control import Controls, SilentListener
from agent.loop.episode import Episode
from agent.loop.play import play
from agent.loop.standby import Reserve, Spare, Standby, Wanted
from agent.loop.waiting import Interrupted
from agent.sandbox.open import check_bubblewrap
from agent.tasks.task import load_task
from agent.trajectory.events import ObservationEvent
from agent.trajectory.folder import RunFolder
from agent.trajectory.reader import read_events

TASK = load_task(Path(__file__).parent / "gelu" / "model.py")
GOOD = TASK.text.split("def get_inputs")[0].replace("class Model", "class ModelNew")
KERNEL = """#include "../launcher.h"
#include <cmath>
static void gelu_add(const float* a, const float* r, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float x = a[i];
    y[i] = 0.5f * x * (1.0f + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x))) + r[i];
  }
}
REGISTER_LAUNCHER(gelu_add);
"""
USES_KERNEL = """import torch
import torch.nn as nn

import cpu_extension


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.bias = nn.Parameter(torch.empty(dim))

    def forward(self, x, r):
        y = torch.empty_like(x)
        cpu_extension.gelu_add(x + self.bias, r, y, x.numel())
        return y
"""
pytestmark = [pytest.mark.bubblewrap, pytest.mark.torch]
Make = Callable[..., Reserve]


@pytest.fixture(scope="module")
def config() -> Config:
    report = check_bubblewrap(Config().sandbox)
    if not report.usable:
        pytest.skip(f"bubblewrap cannot be used here: {report.detail}")
    return load_config(settings=["sandbox.kind=bubblewrap", "judge.target=cpu", "judge.policy=open"])


@pytest.fixture
def make(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Everything that a stand-by leaves anywhere would be left below tmp_path/scratch."""
    (tmp_path / "scratch").mkdir()
    (tmp_path / "workspace").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    monkeypatch.setattr("agent.loop.standby.LEAST_MEMORY_BYTES", 0)
    cache = warm(config, TASK)
    with ExitStack() as stack:

        def reserve(spare: Spare | None = None) -> Reserve:
            def start(builds: Path) -> Standby:
                rules = Rules.of(config.judge, target="cpu")
                return Standby(config, TASK, rules, cache=cache, builds=builds, spare=spare)

            made = Reserve(tmp_path / "workspace", start)
            stack.callback(made.close)
            made.wanted = True
            return made

        yield reserve


def served(
    reserve: Reserve, wanted: Wanted, folder: Path, *, timeout_s: float = 300
) -> VerifyReport | ProfileReport | None:
    return reserve.serve(wanted, variables={}, timeout_s=timeout_s, log=folder / f"{wanted}.log")


def prepared(reserve: Reserve) -> Standby:
    reserve.prepare()
    standby = reserve._current
    assert standby is not None
    deadline = time.monotonic() + 300
    while not standby.signals.has("prepared"):
        assert standby.stands and time.monotonic() < deadline
        time.sleep(0.05)
    return standby


def processes(word: str) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if word.encode() in line and b"standby.py" in line:
                found.append(int(folder.name))
    return found


def test_what_stands_by_serves_one_submission_and_leaves_nothing(make: Make, tmp_path: Path) -> None:
    reserve = make()
    standby = prepared(reserve)
    assert processes(str(tmp_path))
    (tmp_path / "workspace/model_new.py").write_text(GOOD)
    report = served(reserve, "verify", tmp_path)
    assert report is not None and (report.tool, report.status) == ("verify", "verified")
    assert report.evidence["marks_s"]["oracle"] < report.evidence["marks_s"]["awaited"]
    assert (tmp_path / "verify.log").exists()
    assert not standby.stands
    assert served(reserve, "verify", tmp_path) is None
    reserve.close()
    assert not processes(str(tmp_path))
    assert not list((tmp_path / "scratch").iterdir())


def test_a_shared_device_is_held_while_it_is_prepared_and_not_while_it_waits(make: Make, tmp_path: Path) -> None:
    device = threading.Lock()

    @contextmanager
    def spare(leave: Callable[[], bool]) -> Iterator[dict[str, str]]:
        while not device.acquire(timeout=0.05):
            if leave():
                raise Interrupted
        try:
            yield {}
        finally:
            device.release()

    reserve = make(spare)
    device.acquire()  # somebody is timed
    reserve.prepare()
    standby = reserve._current
    assert standby is not None
    while not standby.signals.has("idle"):
        assert standby.stands
        time.sleep(0.05)
    time.sleep(0.3)
    assert not standby.signals.has("device")
    device.release()
    assert reserve.wait(timeout_s=300)
    with device:  # free again
        (tmp_path / "workspace/model_new.py").write_text(GOOD)
        report = served(reserve, "verify", tmp_path)
    assert report is not None and report.status == "verified"


def test_a_wrong_submission_is_rejected_as_ever(make: Make, tmp_path: Path) -> None:
    reserve = make()
    reserve.prepare()  # nobody waits until it is ready
    (tmp_path / "workspace/model_new.py").write_text("class ModelNew:\n    pass\n")
    report = served(reserve, "verify", tmp_path)
    assert report is not None and report.status == "rejected"
    assert report.reasons[0].code.startswith("load.")


def test_one_that_was_killed_scores_nothing_and_another_takes_its_place(make: Make, tmp_path: Path) -> None:
    reserve = make()
    killed = prepared(reserve)
    for pid in processes(str(tmp_path)):
        os.kill(pid, signal.SIGKILL)
    (tmp_path / "workspace/model_new.py").write_text(GOOD)
    assert served(reserve, "verify", tmp_path) is None
    reserve.prepare()
    assert reserve._current is not None and reserve._current is not killed and reserve._current.stands


def test_what_takes_too_long_is_ended_and_said(make: Make, tmp_path: Path) -> None:
    reserve = make()
    prepared(reserve)
    (tmp_path / "workspace/model_new.py").write_text("import time\ntime.sleep(600)\n")
    with pytest.raises(NoReport, match="took longer than 1 s"):
        served(reserve, "verify", tmp_path, timeout_s=1)
    reserve.close()
    assert not processes(str(tmp_path))


def test_a_submission_that_cannot_be_copied_is_left_to_the_tool_itself(make: Make, tmp_path: Path) -> None:
    reserve = make()
    reserve.prepare()
    (tmp_path / "workspace/model_new.py").symlink_to("/etc/passwd")
    assert served(reserve, "verify", tmp_path) is None


def test_nothing_stands_by_before_tools_are_used_nor_without_memory(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = make()
    reserve.wanted = False
    reserve.prepare()
    assert reserve._current is None
    reserve.wanted = True
    monkeypatch.setattr("agent.loop.standby.LEAST_MEMORY_BYTES", 1 << 60)
    reserve.prepare()
    assert reserve._current is None


def judged(config: Config, reserve: Reserve, workspace: Path) -> tuple[Verdict, Standby]:
    standby = reserve.take()
    assert standby is not None
    try:
        return judge_submission(config, TASK, workspace, standing=standby.judge), standby
    finally:
        standby.close()
        standby.join()


def test_a_judge_that_stood_by_accepts_what_a_cold_one_does(config: Config, make: Make, tmp_path: Path) -> None:
    reserve = make()
    prepared(reserve)
    (tmp_path / "workspace/model_new.py").write_text(GOOD)
    verdict, standby = judged(config, reserve, tmp_path / "workspace")
    assert (verdict.verdict, verdict.policy, verdict.reasons) == ("accepted", "open", ())
    assert verdict.reward in (1, 2, 3) and verdict.speedup is not None
    assert verdict.evidence["marks_s"]["oracle"] < verdict.evidence["marks_s"]["awaited"]
    assert reserve.take() is None and standby.is_gone
    reserve.close()
    assert not processes(str(tmp_path))
    assert not list((tmp_path / "scratch").iterdir())


def test_what_it_does_not_accept_a_cold_judge_decides(config: Config, make: Make, tmp_path: Path) -> None:
    reserve = make()
    prepared(reserve)
    (tmp_path / "workspace/model_new.py").write_text("class ModelNew:\n    pass\n")
    verdict, _ = judged(config, reserve, tmp_path / "workspace")
    assert verdict.verdict == "rejected" and verdict.reasons[0].code.startswith("load.")
    assert "awaited" not in verdict.evidence["marks_s"]  # a sandbox of its own


def test_a_judge_that_was_killed_is_replaced(config: Config, make: Make, tmp_path: Path) -> None:
    reserve = make()
    prepared(reserve)
    (tmp_path / "workspace/model_new.py").write_text(GOOD)
    standby = reserve.take()
    assert standby is not None
    for pid in processes(str(tmp_path)):
        os.kill(pid, signal.SIGKILL)
    verdict = judge_submission(config, TASK, tmp_path / "workspace", standing=standby.judge)
    standby.close()
    standby.join()
    assert verdict.verdict == "accepted" and "awaited" not in verdict.evidence["marks_s"]


def test_a_judgement_builds_anew_whatever_lies_in_the_folder_of_builds(
    config: Config, make: Make, tmp_path: Path
) -> None:
    """Its sandbox shares that folder with the episode's, whose commands may write there."""
    reserve = make()
    prepared(reserve)
    kernels = tmp_path / "workspace/kernels"
    kernels.mkdir()
    (kernels / "gelu_add.cpp").write_text(KERNEL)
    (tmp_path / "workspace/model_new.py").write_text(USES_KERNEL)
    report = served(reserve, "verify", tmp_path)
    assert report is not None and report.status == "verified", report
    modules = list(reserve.builds.rglob("*.so"))
    assert modules
    for module in modules:
        module.chmod(0o666)
        module.write_bytes(b"not a library")
    prepared(reserve)
    verdict, _ = judged(config, reserve, tmp_path / "workspace")
    assert verdict.verdict == "accepted" and "awaited" in verdict.evidence["marks_s"]


def test_an_episode_is_judged_by_what_stood_by(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.loop.standby.LEAST_MEMORY_BYTES", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    turns = Turns(
        reply(call("write_file", path="model_new.py", content=GOOD)),
        reply(call("compile")),
        reply(call("verify")),
        reply(call("submit", summary="")),
    )
    folder = RunFolder.create(tmp_path / "runs", TASK, config)
    with Episode(config, TASK, folder, backend=turns, listener=SilentListener(), controls=Controls()) as episode:
        result = episode.run(None)
    assert result.best is not None and result.best.verdict == "accepted"
    assert "awaited" in result.best.evidence["marks_s"]
    assert not processes(str(tmp_path))
    assert not list((tmp_path / "scratch").iterdir())


def test_an_episode_checks_with_what_stood_by_while_its_model_thought(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.loop.standby.LEAST_MEMORY_BYTES", 0)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    turns = Turns(
        reply(call("write_file", path="model_new.py", content=GOOD)), reply(call("compile")), reply(call("verify"))
    )
    folder = RunFolder.create(tmp_path / "runs", TASK, config)
    with Episode(config, TASK, folder, backend=turns, listener=SilentListener(), controls=Controls()) as episode:
        session = episode.open()
        play(session, lambda: episode.begin(session))
        reserve = session.bench.reserve
        assert reserve is not None and reserve._current is not None  # the next one
    assert not processes(str(tmp_path))
    assert not list((tmp_path / "scratch").iterdir())
    seen = [event for event in read_events(folder.events) if isinstance(event, ObservationEvent)]
    assert seen[-1].status == "ok" and seen[-1].report is not None
    assert "awaited" in seen[-1].report["evidence"]["marks_s"]

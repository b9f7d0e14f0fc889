"""Whole episodes in the bubblewrap sandbox with the real tools: verdicts, stop reasons, what is on disk afterwards."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from stand_ins import Turns, bash, call, reply

from agent.backends import scripted_steps as steps
from agent.backends.base import Backend, Message, Reply
from agent.backends.openai_api import OpenAIBackend
from agent.backends.replay import ReplayBackend
from agent.backends.scripted_server import ScriptedServer
from agent.config import BackendConfig, Config, load_config
from agent.errors import BackendError, RecordError, SandboxError, TaskError
from agent.judging.reports import Verdict
from agent.loop.control import Controls, SilentListener
from agent.loop.episode import EpisodeResult, resume_episode, run_episode
from agent.loop.ledger import Ledger
from agent.sandbox.open import check_bubblewrap
from agent.tasks.task import Task, load_task, text_sha256
from agent.trajectory.events import (
    Event,
    MessageEvent,
    ObservationEvent,
    Resumed,
    RunEnd,
    RunStart,
    SnapshotEvent,
    StopEvent,
    StopReason,
    VerdictEvent,
)
from agent.trajectory.folder import RunFolder
from agent.trajectory.reader import read_events

HERE = Path(__file__).parent
GELU = load_task(HERE / "gelu" / "model.py")
pytestmark = [pytest.mark.bubblewrap, pytest.mark.torch]

Start = Callable[..., EpisodeResult]


@pytest.fixture(scope="module", autouse=True)
def _bubblewrap() -> None:
    report = check_bubblewrap(Config().sandbox)
    if not report.usable:
        pytest.skip(f"bubblewrap cannot be used here: {report.detail}")


@pytest.fixture
def start(tmp_path: Path) -> Start:
    def run(backend: Backend, *settings: str, task: Task = GELU, controls: Controls | None = None) -> EpisodeResult:
        config = load_config(settings=["sandbox.kind=bubblewrap", "judge.target=cpu", *settings])
        folder = RunFolder.create(tmp_path / "läufe und so", task, config)
        return run_episode(config, task, folder, backend=backend, listener=SilentListener(), controls=controls)

    return run


def events_of(result: EpisodeResult) -> list[Event]:
    return list(read_events(result.run_dir / "events.jsonl"))


def observed(events: list[Event]) -> list[ObservationEvent]:
    return [event for event in events if isinstance(event, ObservationEvent)]


def test_a_whole_episode_keeps_the_best_and_judges_both(start: Start) -> None:
    result = start(ReplayBackend(HERE / "gelu"))
    events = events_of(result)
    seen = observed(events)
    assert [event.status for event in seen] == ["ok", "ok", "ok", "failed", "ok", "ok", "failed", "ok"], seen
    assert "has not been verified" in seen[3].text
    assert "torch.compile" in seen[4].text
    assert "A verified submission from earlier is kept" in seen[6].text
    (kept,) = (event for event in events if isinstance(event, SnapshotEvent))
    report = seen[4].report
    assert report is not None
    assert kept.speedup == min(baseline["ratio"] for baseline in report["speedup"].values())
    assert "0.5f" in (result.run_dir / "best/kernels/gelu.cpp").read_text()
    assert "0.6f" in (result.run_dir / "workspace/kernels/gelu.cpp").read_text()

    assert result.best is not None and result.final is not None
    assert result.best.verdict == "accepted", result.best.reasons
    assert result.final.verdict == "rejected"
    assert any(reason.code.startswith("numeric.") for reason in result.final.reasons)
    assert result.verdict is result.best
    assert result.reward == result.best.reward
    assert result.reason is StopReason.SUBMITTED
    assert isinstance(events[-1], RunEnd)
    assert events[-1].reward == result.reward
    assert [event.subject for event in events if isinstance(event, VerdictEvent)] == ["best", "final"]
    record = json.loads((result.run_dir / "verdict.json").read_text())
    assert (record["counts"], record["reward"], record["errors"]) == ("best", result.reward, [])
    assert Verdict.model_validate(record["best"]) == result.best

    again = resume_episode(RunFolder.open(result.run_dir), backend=Turns(), listener=SilentListener())
    assert again == result
    assert events_of(result) == events


def test_a_scripted_server_drives_a_run_over_http(start: Start) -> None:
    turns = [
        steps.rate_limited("0"),
        steps.reply("looking", [("bash", {"command": "echo hello; echo there >&2"})]),
        steps.reply("", [("bash", '{"command": "echo tr')]),
        steps.reply("", [("bash", {"command": "touch ran"})], finish="length"),
        steps.reply("", [("write_file", {"path": "notes.txt", "content": "a plan"}), ("compile", {})]),
        steps.reply("just words"),
        steps.overflow(),
    ]
    with ScriptedServer(turns) as server:
        backend = OpenAIBackend(BackendConfig(model="scripted", base_url=server.base_url))
        try:
            result = start(backend)
        finally:
            backend.close()
    seen = observed(events_of(result))
    assert [event.status for event in seen] == ["ok", "invalid", "ok", "failed"]
    assert seen[0].text == "Exit code 0.\nhello\nthere"
    assert "nothing to compile" in seen[3].text
    assert not (result.run_dir / "workspace" / "ran").exists()
    assert result.reason is StopReason.CONTEXT
    assert result.turns == 5
    assert (result.reward, result.exit_code) == (-1, 1)
    assert result.final is not None
    assert result.final.reasons[0].code == "load.submission"


def test_nothing_submitted_is_rejected_without_a_sandbox(start: Start) -> None:
    result = start(Turns(bash("true")))
    assert (result.reason, result.reward, result.best) == (StopReason.SCRIPT_END, -1, None)
    assert result.final is not None
    assert result.final.reasons[0].code == "load.submission"
    assert not (result.run_dir / "best").exists()


def test_infrastructure_and_people_never_cost_a_reward(start: Start) -> None:
    result = start(Turns(bash("true"), BackendError("gone", kind="unreachable")))
    assert (result.reason, result.reward, result.exit_code) == (StopReason.BACKEND, None, 3)
    controls = Controls()

    def stopping(messages: object) -> Reply:
        controls.request_stop()
        return bash("sleep 60")

    stopped = start(Turns(stopping), controls=controls)
    assert (stopped.reason, stopped.reward, stopped.exit_code) == (StopReason.CANCELLED, None, 1)
    assert stopped.finished


def test_a_stopped_run_is_gone_on_with_where_that_is_asked_for(start: Start) -> None:
    controls = Controls()

    def stopping(messages: object) -> Reply:
        controls.request_stop()
        return bash("sleep 60")

    stopped = start(Turns(bash("true"), stopping), controls=controls)
    folder, silent = RunFolder.open(stopped.run_dir), SilentListener()
    turns = Turns(bash("true"), bash("sleep 60"), bash("echo again"))
    assert resume_episode(folder, backend=turns, listener=silent) == stopped
    assert turns.seen == []
    result = run_episode(folder.config(), GELU, folder, backend=turns, listener=silent, reopen=True)
    assert (result.reason, result.reward, result.turns) == (StopReason.SCRIPT_END, -1, 3)
    events = events_of(result)
    assert [event.reopens for event in events if isinstance(event, Resumed)] == [True]
    assert observed(events)[-1].text == "Exit code 0.\nagain"
    assert [event.reason for event in events if isinstance(event, RunEnd)] == [StopReason.CANCELLED, result.reason]
    assert json.loads((result.run_dir / "verdict.json").read_text())["reason"] == "script_end"
    assert run_episode(folder.config(), GELU, folder, backend=Turns(), listener=silent, reopen=True) == result


def test_the_first_judgement_of_a_reopened_run_does_not_count_against_its_time() -> None:
    ledger = Ledger()
    message = MessageEvent(seq=0, t=100.0, message=Message(role="user", content="Go."))
    stop = StopEvent(seq=1, t=130.0, reason=StopReason.CANCELLED)
    verdict = VerdictEvent(seq=2, t=190.0, subject="final", submission_sha256="0" * 64, verdict={})
    for event in (message, stop, verdict):
        ledger.apply(event)
    assert (ledger.active_s, ledger.played_s) == (90.0, 30.0)
    ledger.apply(Resumed(seq=3, t=500.0, reopens=True))
    assert (ledger.active_s, ledger.stop, ledger.verdicts) == (30.0, None, {})


def test_a_backend_that_never_answers_is_raised_and_recorded(start: Start, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="no key"):
        start(Turns(BackendError("no key", kind="no_key")))
    (run,) = (tmp_path / "läufe und so").iterdir()
    events = list(read_events(run / "events.jsonl"))
    assert isinstance(events[0], RunStart)
    assert isinstance(events[-1], RunEnd)
    assert (events[-1].reason, events[-1].reward) == (StopReason.BACKEND, None)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise RuntimeError('kaputt')", "kaputt"),
        ("def get_inputs(): return [1]", "task."),
        ("class Model(torch.nn.Module):\n    def forward(self, x): return None", "task."),
    ],
)
def test_a_task_that_is_none_fails_before_the_model_is_asked(
    start: Start, tmp_path: Path, body: str, words: str
) -> None:
    text = f"{GELU.text}\n{body}\n"
    task = Task(path=Path("/x/model.py"), name="bad", text=text, sha256=text_sha256(text))
    backend = Turns(bash("true"))
    with pytest.raises(TaskError, match=words) as caught:
        start(backend, task=task)
    assert "\n" not in str(caught.value)
    assert backend.seen == []
    assert list((tmp_path / "läufe und so").iterdir()) == []


def test_a_run_is_written_by_one_process_at_a_time(tmp_path: Path) -> None:
    config = load_config(settings=["sandbox.kind=bubblewrap", "judge.target=cpu"])
    folder = RunFolder.create(tmp_path, GELU, config)
    with folder.lock(), pytest.raises(RecordError, match="in use by another process"):
        run_episode(config, GELU, folder, backend=Turns(), listener=SilentListener())
    assert folder.path.exists()


def test_the_model_can_read_the_complete_log_of_a_long_output(start: Start) -> None:
    turns = Turns(
        bash("seq 1 50000"), bash("grep -c . /opt/agent-logs/0001-bash.log"), bash("rm /opt/agent-logs/0001-bash.log")
    )
    seen = observed(events_of(start(turns)))
    assert seen[1].text == "Exit code 0.\n50000"
    assert seen[2].status == "failed"


def test_a_stop_ends_a_running_command_and_leaves_nothing_running(start: Start) -> None:
    controls = Controls()
    marker = "61.0625"

    def stopping(messages: object) -> Reply:
        threading.Timer(1.0, controls.request_stop).start()
        return bash(f"sleep {marker}; touch late")

    result = start(Turns(stopping), controls=controls)
    assert result.reason is StopReason.CANCELLED
    assert observed(events_of(result))[-1].status == "not_executed"
    assert marker.encode() not in b"".join(p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if readable(p))


def readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


def test_a_sandbox_that_cannot_open_raises_and_leaves_no_run(start: Start, tmp_path: Path) -> None:
    with pytest.raises(SandboxError):
        start(Turns(bash("true")), "sandbox.python=/nonexistent/python")
    assert list((tmp_path / "läufe und so").iterdir()) == []


def test_a_reply_after_submit_never_happens(start: Start) -> None:
    backend = Turns(reply(call("submit"), call("submit")), bash("echo never"))
    assert start(backend).turns == 1

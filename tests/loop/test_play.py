"""The loop from the first reply to a recorded stop reason, with real commands."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sessions import MakeSession, begin
from stand_ins import Turns, bash, call, reply

from agent.backends.base import Message, Reply, ToolCall
from agent.errors import BackendError, ContextOverflow, SandboxError
from agent.loop.control import Controls, Decision, PauseChoice
from agent.loop.conversation import Conversation
from agent.loop.ledger import Ledger
from agent.loop.play import play
from agent.loop.session import Session
from agent.trajectory.events import (
    ActionEvent,
    Event,
    MessageEvent,
    ObservationEvent,
    ReplyEvent,
    StopEvent,
    StopReason,
)
from agent.trajectory.reader import read_events


def run(session: Session) -> list[Event]:
    """Play to the end; the log on disk, after the invariants that hold for every run."""
    play(session, lambda: begin(session))
    events = list(read_events(session.folder.events))
    calls = [c.id for event in events if isinstance(event, ReplyEvent) for c in event.reply.calls]
    observed = [event.call_id for event in events if isinstance(event, ObservationEvent)]
    assert calls == observed, "every call id has exactly one observation, in order"
    assert len(set(calls)) == len(calls)
    again, conversation = Ledger(), Conversation()
    for event in events:
        again.apply(event)
        conversation.apply(event)
    assert again == session.ledger
    assert conversation.messages == session.log.conversation.messages
    return events


def observations(events: list[Event]) -> list[ObservationEvent]:
    return [event for event in events if isinstance(event, ObservationEvent)]


def stop(events: list[Event]) -> StopEvent:
    assert isinstance(events[-1], StopEvent)
    return events[-1]


def test_commands_run_and_the_model_sees_what_they_said(make_session: MakeSession) -> None:
    backend = Turns(
        bash("echo out; echo err >&2; exit 3"), bash("pwd; echo $PAGER"), reply(call("submit"), call("submit"))
    )
    session = make_session(backend)
    events = run(session)
    first, second, *_ = observations(events)
    assert (first.status, first.exit_code, first.text) == ("failed", 3, "Exit code 3.\nout\nerr")
    assert (second.status, second.exit_code) == ("ok", 0)
    assert second.text.splitlines()[1:] == [str(session.folder.workspace), "cat"]
    assert backend.seen[1][-1] == Message(role="tool", content=first.text, tool_call_id=first.call_id)
    assert list(session.folder.logs.iterdir()) == []
    assert stop(events).reason is StopReason.SUBMITTED


def test_stdout_and_stderr_keep_their_order(make_session: MakeSession) -> None:
    command = "for i in 1 2 3 4 5; do echo out$i; echo err$i >&2; done"
    events = run(make_session(Turns(bash(command))))
    expected = [f"{stream}{i}" for i in range(1, 6) for stream in ("out", "err")]
    assert observations(events)[0].text.splitlines()[1:] == expected


def test_a_long_output_is_shortened_and_complete_on_disk(make_session: MakeSession) -> None:
    session = make_session(Turns(bash("seq 1 200000")), "limits.observation_chars=1000")
    seen = observations(run(session))[0]
    whole = "".join(f"{number}\n" for number in range(1, 200_001))
    assert seen.log == "logs/0001-bash.log"
    assert (session.folder.path / seen.log).read_text() == whole
    assert f"{len(whole) - 1000} characters omitted" in seen.text
    assert "/opt/agent-logs/0001-bash.log" in seen.text
    assert whole[:500] in seen.text
    assert seen.text.endswith("199999\n200000")
    assert len(seen.text) < 1200


def test_a_timeout_is_an_observation_with_the_output_so_far(make_session: MakeSession) -> None:
    events = run(make_session(Turns(bash("echo begun; sleep 30", timeout_s=0.5), bash("echo after"))))
    first, second = observations(events)
    assert first.status == "timeout"
    assert "Ended after 0.5 s" in first.text
    assert "begun" in first.text
    assert second.status == "ok"


def test_a_timeout_is_clamped_to_the_limit(make_session: MakeSession) -> None:
    session = make_session(Turns(bash("sleep 30", timeout_s=1000)), "limits.command_timeout_s=0.5")
    assert "Ended after 0.5 s" in observations(run(session))[0].text


def test_several_calls_of_a_reply_run_in_order(make_session: MakeSession) -> None:
    calls = [
        call("write_file", path="a", content="1"),
        call("edit_file", path="a", old="1", new="2"),
        call("bash", command="cat a"),
    ]
    events = run(make_session(Turns(reply(*calls))))
    assert [seen.status for seen in observations(events)] == ["ok", "ok", "ok"]
    assert observations(events)[-1].text == "Exit code 0.\n2"
    assert observations(events)[1].diff is not None


def test_only_so_many_calls_of_a_reply_are_executed(make_session: MakeSession) -> None:
    events = run(make_session(Turns(reply(*[call("bash", command=f"echo {i}") for i in range(20)]))))
    statuses = [seen.status for seen in observations(events)]
    assert statuses == ["ok"] * 16 + ["not_executed"] * 4


def test_empty_and_repeated_call_ids_become_unique(make_session: MakeSession) -> None:
    same = reply(
        call("bash", id="x", command="echo 1"), call("bash", id="x", command="echo 2"), call("bash", command="echo 3")
    )
    events = run(make_session(Turns(same, same)))
    assert [seen.text[-1] for seen in observations(events)] == ["1", "2", "3"] * 2


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (call("bash", cmd="ls"), ["command: Field required", "Expected: bash(command: string"]),
        (
            call("python", code="1"),
            ["no action 'python'", "bash, write_file, edit_file, compile, verify, profile, submit"],
        ),
        (ToolCall(id="", name="bash", arguments='{"command": "l'), ["not valid JSON"]),
    ],
)
def test_an_invalid_call_is_explained(make_session: MakeSession, bad: ToolCall, words: list[str]) -> None:
    events = run(make_session(Turns(reply(bad, call("bash", command="echo fine")))))
    first, second = observations(events)
    assert first.status == "invalid"
    assert all(word in first.text for word in words), first.text
    assert second.status == "ok"
    assert [event.call_id for event in events if isinstance(event, ActionEvent)] == [second.call_id]


def test_no_observation_grows_without_bound(make_session: MakeSession) -> None:
    events = run(make_session(Turns(reply(call("x" * 100_000), call("bash", command="echo fine")))))
    first, second = observations(events)
    assert first.status == "invalid"
    assert len(first.text) < 31_000
    assert "characters omitted" in first.text
    assert second.status == "ok"


def test_three_replies_without_a_usable_call_stop_the_run(make_session: MakeSession) -> None:
    empty = reply(text="I think", finish_reason="stop")
    backend = Turns(empty, bash("echo 1"), empty, reply(call("python")), reply(text="", finish_reason="stop"))
    events = run(make_session(backend))
    assert stop(events).reason is StopReason.FORMAT
    complaints = [event for event in events if isinstance(event, MessageEvent) and event.origin == "format_error"]
    assert len(complaints) == 2
    assert "held no action" in complaints[0].message.content
    assert backend.seen[1][-1] == complaints[0].message
    assert [bool(event.format_error) for event in events if isinstance(event, ReplyEvent)] == [
        True,
        False,
        True,
        True,
        True,
    ]


def test_a_cut_off_reply_is_never_executed(make_session: MakeSession, tmp_path: Path) -> None:
    cut = reply(call("bash", command=f"touch {tmp_path}/ran"), finish_reason="length")
    events = run(make_session(Turns(cut, reply(text="long", finish_reason="length"), bash("echo fine"))))
    first, second = observations(events)
    assert (first.status, second.status) == ("not_executed", "ok")
    assert "cut off" in first.text
    assert not (tmp_path / "ran").exists()
    assert [e.message.content for e in events if isinstance(e, MessageEvent)][-1].startswith("Your reply was cut off")


def test_the_backends_own_complaint_is_passed_on(make_session: MakeSession) -> None:
    broken = reply(text="```action bash", finish_reason="stop", raw={"format_error": "the fence is never closed"})
    backend = Turns(broken, bash("echo 1"))
    events = run(make_session(backend))
    assert backend.seen[1][-1].content == "the fence is never closed"
    assert next(e.format_error for e in events if isinstance(e, ReplyEvent)) == "the fence is never closed"


@pytest.mark.parametrize(
    ("turns", "settings", "reason"),
    [
        ([bash(f"echo {i}") for i in range(9)], ["limits.turns=3"], StopReason.TURNS),
        ([bash(f"echo {i}") for i in range(9)], ["limits.tokens=50"], StopReason.TOKENS),
        (
            [reply(call("bash", command=f"echo {i}"), cost_usd=0.4) for i in range(9)],
            ["limits.cost_usd=1"],
            StopReason.COST,
        ),
        ([reply(text=str(i), cost_usd=0.4) for i in range(9)], ["limits.cost_usd=0.7"], StopReason.COST),
        ([bash("echo same")] * 9, [], StopReason.STUCK),
        ([bash("echo 1"), ContextOverflow("the window is full")], [], StopReason.CONTEXT),
        ([bash("echo 1"), bash("echo 2")] * 9, [], StopReason.STUCK),
        ([reply(refusal="I will not", finish_reason="stop")] * 2, [], StopReason.REFUSED),
        ([reply(finish_reason="refusal")], ["limits.refusals=1"], StopReason.REFUSED),
        ([bash("echo 1")], [], StopReason.SCRIPT_END),
        ([bash("echo 1"), BackendError("no answer", kind="unreachable")], [], StopReason.BACKEND),
        ([bash("echo 1"), RuntimeError("a fault")], [], StopReason.INTERNAL),
        ([bash("sleep 60")], ["limits.time_s=1", "limits.judge_reserve_s=0.2"], StopReason.TIME),
    ],
)
def test_every_way_to_end_is_recorded(
    make_session: MakeSession, turns: list[Any], settings: list[str], reason: StopReason
) -> None:
    began = time.monotonic()
    events = run(make_session(Turns(*turns), *settings))
    assert stop(events).reason is reason
    assert time.monotonic() - began < 30


def test_a_refusal_is_answered_once(make_session: MakeSession) -> None:
    declined = reply(refusal="I cannot help with that", finish_reason="stop")
    backend = Turns(declined, bash("echo 1"), declined, reply(call("submit"), call("submit")))
    events = run(make_session(backend))
    answers = [e for e in events if isinstance(e, MessageEvent) and e.origin == "refusal"]
    assert len(answers) == 2 and stop(events).reason is StopReason.SUBMITTED
    assert backend.seen[1][-1].content == answers[0].message.content
    assert "performance engineering" in answers[0].message.content


def test_going_round_in_circles_is_noticed(make_session: MakeSession) -> None:
    events = run(make_session(Turns(*[bash(f"echo {i % 3}") for i in range(60)]), "limits.repeats=3"))
    assert len(observations(events)) == 9
    assert stop(events).detail == "the same 3 actions with the same outcomes 3 times in a row"


def test_a_fault_is_recorded_with_what_it_was_first(make_session: MakeSession) -> None:
    detail = stop(run(make_session(Turns(RuntimeError("a fault"))))).detail
    assert detail.startswith("RuntimeError: a fault\n")
    assert "stand_ins.py" in detail


def test_counts_at_the_limits_are_exact(make_session: MakeSession) -> None:
    session = make_session(Turns(*[bash(f"echo {i}") for i in range(9)]), "limits.turns=3")
    events = run(session)
    assert len(observations(events)) == session.ledger.turns == 3
    stuck = make_session(Turns(*[bash("echo same")] * 9), "limits.repeats=4")
    assert len(observations(run(stuck))) == 4


def test_repeats_with_another_outcome_in_between_do_not_count(make_session: MakeSession) -> None:
    turns = [bash("echo same") if i % 3 else bash("date +%N") for i in range(12)]
    assert stop(run(make_session(Turns(*turns)))).reason is StopReason.SCRIPT_END


def test_a_repeated_long_output_counts_although_its_log_has_another_name(make_session: MakeSession) -> None:
    events = run(make_session(Turns(*[bash("seq 1 9000")] * 9)))
    assert stop(events).reason is StopReason.STUCK


def test_an_unknown_price_is_no_price_and_no_crash(make_session: MakeSession) -> None:
    turns = [reply(call("bash", command=f"echo {i}"), cost_usd=None) for i in range(3)]
    session = make_session(Turns(*turns), "limits.cost_usd=0.01")
    assert stop(run(session)).reason is StopReason.SCRIPT_END
    assert session.ledger.total_cost_usd is None


def test_the_end_of_the_budget_is_announced_once(make_session: MakeSession) -> None:
    backend = Turns(*[bash(f"echo {i}") for i in range(12)])
    events = run(make_session(backend, "limits.turns=10"))
    warnings = [event for event in events if isinstance(event, MessageEvent) and event.origin == "limit"]
    assert len(warnings) == 1
    assert "1 of 10 turns left" in warnings[0].message.content
    assert sum(isinstance(event, ReplyEvent) for event in events[: warnings[0].seq]) == 9


def test_time_limits_clamp_a_running_command(make_session: MakeSession) -> None:
    session = make_session(
        Turns(bash("echo begun; sleep 60"), bash("echo never")), "limits.time_s=2", "limits.judge_reserve_s=1"
    )
    events = run(session)
    (seen,) = observations(events)
    assert (seen.status, stop(events).reason) == ("timeout", StopReason.TIME)


def test_time_ends_a_wait_for_the_model(make_session: MakeSession) -> None:
    def slow(messages: object) -> Reply:
        time.sleep(20)
        return bash("echo never")

    session = make_session(Turns(slow), "limits.time_s=1", "limits.judge_reserve_s=0.5")
    began = time.monotonic()
    events = run(session)
    assert stop(events).reason is StopReason.TIME
    assert time.monotonic() - began < 10
    assert not observations(events)


def test_submit_asks_once_when_nothing_is_verified(make_session: MakeSession) -> None:
    backend = Turns(reply(call("submit", summary="done")), reply(call("submit", summary="done")), bash("echo never"))
    events = run(make_session(backend))
    first, second = observations(events)
    assert (first.status, second.status) == ("failed", "ok")
    assert "holds no model_new.py" in first.text
    assert stop(events).reason is StopReason.SUBMITTED


def test_calls_after_submit_are_not_executed(make_session: MakeSession, tmp_path: Path) -> None:
    calls = reply(call("submit"), call("submit"), call("bash", command=f"touch {tmp_path}/ran"))
    events = run(make_session(Turns(calls)))
    assert [seen.status for seen in observations(events)] == ["failed", "ok", "not_executed"]
    assert not (tmp_path / "ran").exists()


class Person:
    """Answers as told."""

    def __init__(self, *, decisions: list[Decision] | None = None, choices: list[PauseChoice] | None = None) -> None:
        self.decisions, self.choices = decisions or [], choices or []
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def confirm(self, name: str, arguments: Mapping[str, Any]) -> Decision:
        self.asked.append((name, dict(arguments)))
        return self.decisions.pop(0)

    def paused(self) -> PauseChoice:
        return self.choices.pop(0)


def test_confirm_asks_before_each_action(make_session: MakeSession, tmp_path: Path) -> None:
    person = Person(decisions=[Decision(True), Decision(False, "use /tmp instead")])
    turns = Turns(bash("echo 1"), bash(f"touch {tmp_path}/ran"))
    events = run(make_session(turns, "run.confirm=true", operator=person))
    first, second = observations(events)
    assert (first.status, second.status) == ("ok", "denied")
    assert "They say: use /tmp instead" in second.text
    assert not (tmp_path / "ran").exists()
    assert person.asked[0] == ("bash", {"command": "echo 1"})
    assert len([event for event in events if isinstance(event, ActionEvent)]) == 1


def test_a_pause_can_continue_with_a_message(make_session: MakeSession) -> None:
    controls = Controls()
    person = Person(choices=[PauseChoice("message", "try AVX"), PauseChoice("continue")])

    def pausing(messages: object) -> Reply:
        controls.request_pause()
        return reply(call("bash", command="echo 1"), call("bash", command="echo 2"))

    backend = Turns(pausing, pausing, bash("echo 3"))
    events = run(make_session(backend, operator=person, controls=controls))
    assert [seen.status for seen in observations(events)] == ["ok"] * 5
    assert [m.content for m in backend.seen[1][-3:]] == ["Exit code 0.\n1", "Exit code 0.\n2", "try AVX"]
    assert sum(event.origin == "person" for event in events if isinstance(event, MessageEvent)) == 1
    assert person.choices == []


def test_a_persons_message_is_recorded_at_once_and_shown_after_the_open_calls(make_session: MakeSession) -> None:
    controls = Controls()

    def pausing(messages: object) -> Reply:
        controls.request_pause()
        return reply(call("bash", command="echo 1"), call("bash", command="echo 2"))

    person = Person(choices=[PauseChoice("message", "try AVX")])
    backend = Turns(pausing, bash("echo 3"))
    events = run(make_session(backend, operator=person, controls=controls))
    kinds = [event.type for event in events if event.type in ("reply", "message", "observation")]
    assert kinds[2:6] == ["reply", "message", "observation", "observation"]
    assert [m.content for m in backend.seen[1][-3:]] == ["Exit code 0.\n1", "Exit code 0.\n2", "try AVX"]


@pytest.mark.parametrize("kind", ["stop", "quit"])
def test_a_pause_can_end_the_run(make_session: MakeSession, kind: Any) -> None:
    controls = Controls()
    controls.request_pause()
    session = make_session(Turns(bash("echo 1")), operator=Person(choices=[PauseChoice(kind)]), controls=controls)
    result, error = play(session, lambda: begin(session))
    assert error is None
    assert (result.reason if result else None) is (StopReason.CANCELLED if kind == "stop" else None)
    assert session.ledger.turns == 0


@pytest.mark.parametrize("wanted", ["stop", "quit"])
def test_a_request_interrupts_a_running_command(make_session: MakeSession, wanted: str) -> None:
    controls = Controls()
    session = make_session(Turns(bash("sleep 60"), bash("echo never")), controls=controls)
    timer = threading.Timer(0.7, controls.request_stop if wanted == "stop" else controls.request_quit)
    timer.start()
    began = time.monotonic()
    result, _ = play(session, lambda: begin(session))
    assert time.monotonic() - began < 20
    events = list(read_events(session.folder.events))
    if wanted == "stop":
        assert result is not None and result.reason is StopReason.CANCELLED
        assert observations(events)[-1].status == "not_executed"
    else:
        assert result is None
        assert isinstance(events[-1], ActionEvent)


def test_a_stop_interrupts_the_wait_for_the_model(make_session: MakeSession) -> None:
    controls = Controls()

    def slow(messages: object) -> Reply:
        threading.Timer(0.3, controls.request_stop).start()
        time.sleep(20)
        return bash("echo never")

    began = time.monotonic()
    events = run(make_session(Turns(slow), controls=controls))
    assert stop(events).reason is StopReason.CANCELLED
    assert time.monotonic() - began < 10


def test_a_dead_sandbox_ends_the_run_and_is_not_a_failed_command(make_session: MakeSession) -> None:
    session = make_session(Turns(bash("echo 1"), bash("sleep 60")))
    threading.Timer(0.7, session.bench.sandbox.close).start()
    events = run(session)
    assert stop(events).reason is StopReason.SANDBOX
    assert observations(events)[-1].status == "not_executed"


def test_an_oom_of_the_sandbox_is_told_apart(make_session: MakeSession) -> None:
    events = run(make_session(Turns(SandboxError("killed", oom=True, post_mortem="OOMKilled"))))
    assert stop(events).reason is StopReason.OOM
    assert "OOMKilled" in stop(events).detail


def test_the_state_of_the_graph_stays_small_and_plain(make_session: MakeSession) -> None:
    import sqlite3

    session = make_session(Turns(*[bash(f"seq 1 {2000 + i}") for i in range(60)]), "limits.turns=60")
    run(session)
    with sqlite3.connect(session.folder.graph) as database:
        largest, rows = database.execute("SELECT max(length(checkpoint)), count(*) FROM checkpoints").fetchone()
        kinds = {kind for (kind,) in database.execute("SELECT DISTINCT type FROM checkpoints")}
    database.close()
    assert rows > 120
    assert largest < 4096
    assert kinds == {"msgpack"}
    assert session.folder.graph.stat().st_size < 2_000_000
    text = session.folder.graph.read_bytes()
    assert b"\n1999\n" not in text


def test_the_log_is_plain_json_lines(make_session: MakeSession) -> None:
    session = make_session(Turns(bash("printf '\\xff\\xfe caf\\xc3\\xa9'")))
    run(session)
    lines = [json.loads(line) for line in session.folder.events.read_text().splitlines()]
    assert [line["seq"] for line in lines] == list(range(len(lines)))


@pytest.mark.bubblewrap
def test_a_disk_that_fills_up_stops_the_run_with_everything_before_intact(tmp_path: Path) -> None:
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        pytest.skip("no bwrap")
    here = Path(__file__).parent
    small = tmp_path / "small"
    small.mkdir()
    argv = [bwrap, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--size", "700000", "--tmpfs", str(small)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(here.parent.parent), str(here)))}
    inside = [sys.executable, str(here / "full_disk.py"), str(small)]
    done = subprocess.run([*argv, *inside], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    reason, count, turns, last = done.stdout.split()
    assert reason == "disk_full"
    assert int(turns) > 5
    assert int(last) == int(count) - 1

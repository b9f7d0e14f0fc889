"""A shared device is held for what is timed and for nothing else; waiting for it is not the episode's time."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sessions import MakeSession, begin
from stand_ins import LocalSandbox, Turns, bash, call, reply

from agent.loop.ledger import Ledger
from agent.loop.play import play
from agent.loop.waiting import Interrupted
from agent.trajectory.events import ActionEvent, Event, ObservationEvent, StopReason
from agent.trajectory.reader import read_events


class OneDevice:
    """A lock that is waited for as a lease must be, and that remembers when it was held."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.leases = 0

    @contextlib.contextmanager
    def lease(self, *, leave: Callable[[], bool]) -> Iterator[dict[str, str]]:
        while not self.lock.acquire(timeout=0.05):
            if leave():
                raise Interrupted
        self.leases += 1
        try:
            yield {"CUDA_VISIBLE_DEVICES": "GPU-7"}
        finally:
            self.lock.release()


class HeldAt:
    """A listener that notes at which events the device was held."""

    def __init__(self, device: OneDevice) -> None:
        self.device = device
        self.held: list[str] = []

    def on_event(self, event: Event) -> None:
        if self.device.lock.locked():
            self.held.append(event.type)

    def on_status(self, status: object) -> None:
        pass


@pytest.mark.parametrize(("target", "leases"), [("cpu", 1), ("cuda", 2)])
def test_only_what_is_timed_holds_the_device(make_session: MakeSession, target: str, leases: int) -> None:
    device = OneDevice()
    calls = (call("bash", command="echo 1"), call("compile"), call("verify"), call("profile"))
    session = make_session(Turns(reply(*calls)), listener=HeldAt(device))
    session.device = device
    session.bench = replace(session.bench, rules=replace(session.bench.rules, target=target))
    play(session, lambda: begin(session))
    assert device.leases == leases
    assert not device.lock.locked()
    assert isinstance(session.listener, HeldAt) and session.listener.held == []


def test_what_uses_the_device_is_told_which_one_it_is(make_session: MakeSession, tmp_path: Path) -> None:
    class Tells(LocalSandbox):
        python = str(tmp_path / "tells")

    (tmp_path / "tells").write_text(f'#!/bin/sh\necho "$2:$CUDA_VISIBLE_DEVICES" | sed s,.*/,, >> {tmp_path}/told\n')
    (tmp_path / "tells").chmod(0o755)
    session = make_session(Turns(reply(call("compile"), call("verify"), call("profile"))))
    session.device = OneDevice()
    bench = replace(session.bench, rules=replace(session.bench.rules, target="cuda"))
    session.bench = replace(bench, sandbox=Tells(session.folder.workspace))
    play(session, lambda: begin(session))
    told = (tmp_path / "told").read_text().split()
    # What is to be checked on a device is built before one is waited for.
    assert told == ["build.py:", "build.py:", "verify.py:GPU-7", "build.py:", "profiling.py:GPU-7"]


def test_the_wait_is_recorded_and_is_not_the_episodes_time(make_session: MakeSession) -> None:
    device = OneDevice()
    device.lock.acquire()
    threading.Timer(2.0, device.lock.release).start()
    session = make_session(Turns(reply(call("profile")), bash("echo 1")), "limits.time_s=2", "limits.judge_reserve_s=0")
    session.device = device
    stop, _ = play(session, lambda: begin(session))
    assert stop is not None and stop.reason is StopReason.SCRIPT_END
    events = list(read_events(session.folder.events))
    first = next(event for event in events if isinstance(event, ObservationEvent))
    action = next(event for event in events if isinstance(event, ActionEvent))
    assert 1.5 < first.device_wait_s <= first.t - action.t
    again = Ledger()
    for event in events:
        again.apply(event)
    assert again.active_s < events[-1].t - events[0].t - 1.5
    assert session.clock.elapsed_s() < 2


def test_a_stop_ends_the_wait_for_the_device(make_session: MakeSession) -> None:
    device = OneDevice()
    device.lock.acquire()
    session = make_session(Turns(reply(call("profile"))))
    session.device = device
    threading.Timer(0.5, session.controls.request_stop).start()
    began = time.monotonic()
    stop, _ = play(session, lambda: begin(session))
    assert stop is not None and stop.reason is StopReason.CANCELLED
    assert time.monotonic() - began < 30
    assert device.leases == 0

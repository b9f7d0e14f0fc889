"""Plays a recorded run into the live view with a real operator, signals and controls; a program for terminal tests.

Usage: live_player.py SCENARIO FOLDER, where SCENARIO is one of
  hold     after turn 3 waits for a pause, asks the operator, says what was chosen, and plays the rest
  deaf     after turn 3 ignores a pause request and waits for a quit, saying when a stop is requested
  confirm  asks before each action
"""

import sys
import time
from pathlib import Path

from recorded import whole_run

from agent.loop.control import Controls, Status
from agent.trajectory.events import ActionEvent, Event, ReplyEvent
from agent.ui.console import make_console, prepare_streams
from agent.ui.live import LiveView
from agent.ui.operator import TerminalOperator
from agent.ui.progress import Progress
from agent.ui.signals import handled_signals
from agent.ui.views import Heading

LONGEST_S = 100.0
HEADING = Heading(
    title="bias-relu",
    facts=(("task", "model.py"), ("sandbox", "none")),
    remarks=("these turns were written by hand",),
    warnings=("no sandbox: code runs on this machine",),
    turn_limit=150,
    time_limit_s=3600,
)


def main() -> int:
    scenario, folder = sys.argv[1], Path(sys.argv[2])
    prepare_streams()
    events = whole_run(folder).events
    console = make_console()
    view = LiveView(console)
    controls = Controls()
    operator = TerminalOperator(console, view, controls)
    with handled_signals(controls, interactive=True, say=view.say_now):
        view.begin(HEADING, Progress())
        try:
            return play(scenario, events, view, controls, operator)
        finally:
            view.close()


def play(scenario: str, events: list[Event], view: LiveView, controls: Controls, operator: TerminalOperator) -> int:
    for event in events:
        if isinstance(event, ReplyEvent):
            view.on_status(Status("thinking", "some-model", event.turn, time.time()))
            if event.turn == 4 and scenario == "hold" and not hold(view, controls, operator):
                return 3
            if event.turn == 4 and scenario == "deaf":
                return deaf(view, controls)
        view.on_event(event)
        if isinstance(event, ActionEvent):
            view.on_status(Status("acting", event.name, event.turn, time.time()))
            if scenario == "confirm":
                decision = operator.confirm(event.name, event.arguments)
                view.say(f"decided: run {decision.run}, message {decision.message!r}")
                if controls.pause_requested:
                    controls.clear_pause()
                    view.say(f"chosen: {operator.paused().kind}")
    return 0


def hold(view: LiveView, controls: Controls, operator: TerminalOperator) -> bool:
    wait(lambda: controls.any_requested)
    controls.clear_pause()
    choice = operator.paused()
    view.say(f"chosen: {choice.kind} {choice.text!r}")
    return choice.kind != "quit"


def deaf(view: LiveView, controls: Controls) -> int:
    wait(lambda: controls.stop_requested)
    view.say("a stop was requested")
    wait(lambda: controls.quit_requested)
    view.say("a quit was requested")
    return 4


def wait(condition) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + LONGEST_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())

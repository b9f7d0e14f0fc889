"""Plays a run on a disk that fills up (argument: a small file system); prints the reason and what the log holds."""

import sys
from pathlib import Path

from sessions import TASK, begin
from stand_ins import LocalSandbox, Turns, bash

from agent.config import load_config
from agent.judging.tool_runs import Rules
from agent.loop.control import Controls, SilentListener
from agent.loop.conversation import Conversation
from agent.loop.ledger import Ledger
from agent.loop.limits import Clock
from agent.loop.play import play
from agent.loop.session import Log, Session
from agent.loop.workbench import Workbench
from agent.trajectory.folder import RunFolder
from agent.trajectory.reader import read_events
from agent.trajectory.writer import EventWriter

small = Path(sys.argv[1])
config = load_config(settings=["limits.time_s=0"])
folder = RunFolder.create(small / "runs", TASK, config)
with EventWriter(folder.events) as writer:
    session = Session(
        config=config,
        folder=folder,
        log=Log(writer, Ledger(), Conversation()),
        backend=Turns(*[bash(f"echo {i}; head -c 9000 /dev/zero | tr '\\0' x") for i in range(400)]),
        bench=Workbench(LocalSandbox(folder.workspace), TASK, Rules(target="cpu"), config.limits, folder.logs),
        listener=SilentListener(),
        operator=None,
        controls=Controls(),
        clock=Clock(),
    )
    stop, _ = play(session, lambda: begin(session))
events = list(read_events(folder.events))
print(stop.reason.value if stop else None, len(events), session.ledger.turns, [event.seq for event in events][-1])

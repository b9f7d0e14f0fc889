"""A session of the loop in a temporary run folder, with a sandbox that runs real processes."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sessions import TASK, MakeSession
from stand_ins import LocalSandbox

from agent.backends.base import Backend
from agent.config import load_config
from agent.judging.tool_runs import Rules
from agent.loop.control import Controls, Listener, Operator, SilentListener
from agent.loop.conversation import Conversation
from agent.loop.ledger import Ledger
from agent.loop.limits import Clock
from agent.loop.session import Log, Session
from agent.loop.workbench import Workbench
from agent.trajectory.folder import RunFolder
from agent.trajectory.reader import read_events
from agent.trajectory.writer import EventWriter


@pytest.fixture
def make_session(tmp_path: Path) -> Iterator[MakeSession]:
    with ExitStack() as stack:

        def make(
            backend: Backend,
            *settings: str,
            folder: RunFolder | None = None,
            operator: Operator | None = None,
            controls: Controls | None = None,
            listener: Listener | None = None,
        ) -> Session:
            config = load_config(settings=["limits.time_s=0", *settings])
            folder = folder or RunFolder.create(tmp_path / "runs", TASK, config)
            listener = listener or SilentListener()
            writer = stack.enter_context(EventWriter(folder.events, on_event=listener.on_event))
            log = Log(writer, Ledger(), Conversation())
            for event in read_events(folder.events):
                log.ledger.apply(event)
                log.conversation.apply(event)
            rules = Rules(target="cpu")
            sandbox = LocalSandbox(folder.workspace)
            return Session(
                config=config,
                folder=folder,
                log=log,
                backend=backend,
                bench=Workbench(sandbox, TASK, rules, config.limits, folder.logs),
                listener=listener,
                operator=operator,
                controls=controls or Controls(),
                clock=Clock(earlier_s=log.ledger.active_s),
            )

        yield make

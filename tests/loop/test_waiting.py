"""Giving up on a call that opens sandboxes ends it, also when it tries again with another one."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from stand_ins import LocalSandbox

from agent.errors import SandboxError
from agent.loop.waiting import Interrupted, wait_for_sandboxes
from agent.sandbox.base import Sandbox


def test_giving_up_closes_a_sandbox_that_is_opened_afterwards(tmp_path: Path) -> None:
    leaving = threading.Event()
    opened: list[LocalSandbox] = []

    def twice(tell: Callable[[Sandbox], None]) -> None:
        for _ in range(2):
            sandbox = LocalSandbox(tmp_path)
            opened.append(sandbox)
            tell(sandbox)
            leaving.set()
            try:
                sandbox.exec(("sleep", "60"), timeout_s=60)
            except SandboxError:
                continue

    began = time.monotonic()
    with pytest.raises(Interrupted):
        wait_for_sandboxes(twice, leave=leaving.is_set)
    assert time.monotonic() - began < 12
    assert [sandbox.closed for sandbox in opened] == [True, True]

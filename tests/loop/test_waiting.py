"""Calls that are waited for: results and errors come back, giving up ends them, threads are used again."""

import multiprocessing
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from stand_ins import LocalSandbox

from agent.errors import SandboxError
from agent.loop.waiting import Interrupted, OutOfTime, wait_for, wait_for_sandboxes
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


def never() -> bool:
    return False


def test_a_thread_runs_one_call_after_the_other() -> None:
    wait_for(threading.get_ident, leave=never)
    assert len({wait_for(threading.get_ident, leave=never) for _ in range(20)}) == 1
    with pytest.raises(ZeroDivisionError):
        wait_for(lambda: 1 / 0, leave=never)
    assert wait_for(threading.get_ident, leave=never) != threading.get_ident()


def test_calls_at_once_have_a_thread_each() -> None:
    together = threading.Barrier(5)
    found: list[int] = []

    def call() -> int:
        together.wait(30)
        return threading.get_ident()

    callers = [threading.Thread(target=lambda: found.append(wait_for(call, leave=never))) for _ in range(5)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(set(found)) == 5


def test_a_call_that_is_given_up_on_keeps_its_thread_until_it_returns() -> None:
    returns = threading.Event()
    held: list[int] = []

    def stuck() -> None:
        held.append(threading.get_ident())
        returns.wait(60)

    with pytest.raises(OutOfTime):
        wait_for(stuck, leave=never, timeout_s=0.05)
    assert wait_for(threading.get_ident, leave=never) not in held
    returns.set()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own() -> None:
    wait_for(threading.get_ident, leave=never)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(_answer).get(timeout=30) == 42


def _answer() -> int:
    return wait_for(lambda: 42, leave=never)

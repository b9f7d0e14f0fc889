"""Work in processes: order, bounds, a worker that dies, and a parent that dies."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agent.errors import AgentError
from agent.export.pool import AHEAD_PER_JOB, batches, ordered_map


def slowly(number: int) -> int:
    """The first ones take longest."""
    time.sleep(0.02 * (number % 3 == 0))
    return number * number


def die(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("jobs", [1, 3])
def test_results_come_in_order(jobs: int) -> None:
    assert list(ordered_map(slowly, range(20), jobs=jobs)) == [number * number for number in range(20)]


def test_no_more_is_taken_than_is_worked_on() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    results = ordered_map(slowly, items(), jobs=2)
    for count in range(1, 6):
        next(results)
        assert len(taken) <= count + 2 * AHEAD_PER_JOB + 1
    results.close()


def test_a_worker_that_is_killed_is_said() -> None:
    with pytest.raises(AgentError, match="a worker process was killed"):
        list(ordered_map(die, range(8), jobs=2))


def test_batches() -> None:
    assert list(batches(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(batches([], 2)) == []


CODE = """\
import time
from agent.export.pool import ordered_map
for result in ordered_map(abs, range(10**9), jobs=2):
    print(result, flush=True)
    time.sleep(0.01)
"""


def test_workers_end_with_a_parent_that_is_killed() -> None:
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen([sys.executable, "-c", CODE], cwd=root, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) >= 2
        process.kill()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert alive == []

"""Tasks as columns of a trainer's dataset, and libraries that are not there."""

import pytest
from tiny import TASK

from agent.environments.extras import extra
from agent.environments.rows import row_task, task_columns
from agent.errors import ConfigError, TaskError


def test_a_task_travels_in_a_row() -> None:
    assert row_task({**task_columns(TASK), "index": 3}) == TASK
    found = row_task({"task_text": TASK.text})
    assert (found.name, found.sha256) == ("task", TASK.sha256)


@pytest.mark.parametrize("row", [{}, {"task_text": None}, {"task_text": "x = 1"}, {"task_text": "def"}])
def test_a_row_that_is_no_task_is_refused(row: dict[str, object]) -> None:
    with pytest.raises(TaskError):
        row_task(row)


def test_a_missing_library_is_named_with_what_to_install() -> None:
    told = r"no_such_library is not installed \(pip install 'cuda-agent\[trl\]', in a clone"
    with pytest.raises(ConfigError, match=told):
        extra("no_such_library.part", name="trl")

"""The tool that is fed while it works: reports as they come, what is left goes to the next process after a death."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.config import load_config
from agent.errors import JudgeError
from agent.sandbox.base import SandboxSpec
from agent.sandbox.open import open_sandbox
from agent.tasks.admission.examiner import Examination, Examiner
from agent.tasks.admission.feed import Feed, Inbox

pytestmark = pytest.mark.bubblewrap

TOOL = """
import json, os, sys, time
queue = open(sys.argv[sys.argv.index("--queue") + 1])
print("what a library prints", flush=True)
while True:
    line = queue.readline()
    if not line:
        time.sleep(0.02)
        continue
    candidate = json.loads(line)
    if candidate["model_py"] == "always" or (candidate["model_py"] == "once" and not os.path.exists("died")):
        open("died", "w").close()
        sys.stderr.write("killed by the candidate")
        os._exit(9)
    told = {"id": candidate["id"], "status": "admitted", "stage": "admitted", "facts": {"pid": os.getpid()}}
    print(json.dumps(told), flush=True)
"""


class Scripted(Examiner):
    """Another tool in a real sandbox: it answers at once, and dies where a candidate says so."""

    def command(self, how: Examination, *more: str) -> tuple[str, ...]:
        return (self.sandbox.python, "-c", TOOL, *more)


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Feed]:
    config = load_config(files=(), settings=(), flags={"sandbox.kind": "bubblewrap"})
    with Inbox() as inbox:
        sandbox = open_sandbox(config.sandbox, SandboxSpec(workspace=tmp_path, mounts=(inbox.mount,)), target="cpu")
        made = Feed(Scripted(sandbox, target="cpu", memory_gb=1.0), inbox, Examination())
        try:
            yield made
        finally:
            made.close()
            sandbox.close()


def all_reports(feed: Feed) -> dict[str, int]:
    found: dict[str, int] = {}
    while feed.waiting:
        found |= {report.id: report.facts["pid"] for report in feed.reports()}
    return found


def test_candidates_that_come_later_go_to_the_same_process(feed: Feed) -> None:
    feed.submit({"a": "x", "b": "x"})
    first = all_reports(feed)
    feed.submit({"c": "x"})
    feed.submit({"c": "x"})
    second = all_reports(feed)
    assert set(first) == {"a", "b"} and set(second) == {"c"}
    assert len({*first.values(), *second.values()}) == 1


def test_after_a_death_the_rest_goes_to_another_process(feed: Feed) -> None:
    feed.submit({"a": "x", "b": "once", "c": "x"})
    found = all_reports(feed)
    assert set(found) == {"a", "b", "c"} and feed.waiting == {}


def test_a_tool_that_only_dies_is_an_error_of_the_machine(feed: Feed) -> None:
    feed.submit({"a": "always"})
    with pytest.raises(JudgeError, match="ended three times") as told:
        all_reports(feed)
    assert "killed by the candidate" in str(told.value.hint)

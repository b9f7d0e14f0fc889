"""The folder of a collection: a plan that is checked, one driver at a time, lists that survive a torn line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from plans import CONFIG, make_collection, make_task
from pydantic import BaseModel

from agent.batch.collection import Collection, make_plan
from agent.batch.json_lines import JsonLines
from agent.config import load_config
from agent.errors import ConfigError, RecordError


class Number(BaseModel):
    n: int


def test_the_same_command_finds_its_plan_again(tmp_path: Path) -> None:
    collection, plan, tasks = make_collection(tmp_path, "a", "b", samples=2)
    before = (tmp_path / "collection.json").read_bytes()
    assert collection.settle_plan(make_plan(tasks, settings=CONFIG, samples=2)) == plan
    assert (tmp_path / "collection.json").read_bytes() == before
    record = json.loads(before)
    assert record["schema_version"] == 1 and record["samples"] == 2
    assert [sorted(task) for task in record["tasks"]] == [["folder", "id", "sha256", "source"]] * 2


@pytest.mark.parametrize(
    ("names", "text", "settings", "samples", "message"),
    [
        (("a",), "class Model: ...", (), 1, "the text of task a is not the one"),
        (("a", "b"), None, (), 1, "was begun without task b"),
        (("b",), None, (), 1, "was begun without task b"),
        (("a",), None, ("limits.turns=3",), 1, r"limits.turns = 150, not 3"),
        (("a",), None, (), 2, "collects 1 samples per task, not 2"),
    ],
)
def test_another_work_is_a_clear_error(
    tmp_path: Path, names: tuple[str, ...], text: str | None, settings: tuple[str, ...], samples: int, message: str
) -> None:
    collection, _, _ = make_collection(tmp_path, "a")
    tasks = [make_task(name, text) if text else make_task(name) for name in names]
    config = load_config(settings=["sandbox.kind=bubblewrap", "judge.target=cpu", *settings])
    with pytest.raises(ConfigError, match=message):
        collection.settle_plan(make_plan(tasks, settings=config, samples=samples))


def test_the_server_may_have_moved(tmp_path: Path) -> None:
    collection, plan, tasks = make_collection(tmp_path, "a")
    moved = load_config(
        settings=["sandbox.kind=bubblewrap", "judge.target=cpu", "backend.base_url=http://other/v1", "run.output=x"]
    )
    assert collection.settle_plan(make_plan(tasks, settings=moved, samples=1)) == plan


def test_two_texts_under_one_id_are_refused() -> None:
    with pytest.raises(ConfigError, match="two tasks have the id a"):
        make_plan([make_task("a"), make_task("a", "class Model: ...")], settings=CONFIG, samples=1)


def test_ids_that_look_alike_have_folders_of_their_own() -> None:
    names = ("level1/1_x", "level1-1_x", "level1 1_x", "x" * 80, "x" * 81, "..", "ü", "")
    plan = make_plan([make_task(name) for name in names], settings=CONFIG, samples=1)
    folders = [entry.folder for entry in plan.tasks]
    assert len(set(folders)) == len(names)
    assert all(folder.count("/") == 1 and not folder.startswith("tasks/.") for folder in folders)


def test_a_folder_of_something_else_is_no_collection(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match=r"is no collection: it holds letter\.txt"):
        Collection.at(tmp_path).read_plan()
    (tmp_path / "collection.json").write_text("{")
    with pytest.raises(ConfigError, match=r"collection.json is damaged"):
        Collection.at(tmp_path).read_plan()


def test_a_second_driver_is_refused_and_told_of_the_first(tmp_path: Path) -> None:
    code = (
        "import sys; from agent.batch.collection import Collection\n"
        f"with Collection.at(__import__('pathlib').Path({str(tmp_path)!r})).lock():\n"
        "    print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None and first.stdout.readline() == b"locked\n"
        with (
            pytest.raises(RecordError, match=f"is being worked on by process {first.pid}"),
            Collection.at(tmp_path).lock(),
        ):
            pass
        first.kill()
    with Collection.at(tmp_path).lock():
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"


def test_a_torn_line_is_not_there_and_is_cut_off(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "list.jsonl", Number)
    assert list(lines.read()) == []
    lines.append({"n": 1})
    with lines.path.open("ab") as file:
        file.write(b'{"n": 2, "long": "' + b"x" * 10_000)
    assert [line["n"] for line in lines.read()] == [1]
    lines.append({"n": 3, "odd": "\ud800 \n"})
    assert [line["n"] for line in lines.read()] == [1, 3]
    assert lines.path.read_bytes().count(b"\n") == 2


def test_a_damaged_line_in_the_middle_is_said(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "list.jsonl", Number)
    lines.path.write_bytes(b'{"n": 1}\nrubbish\n{"n": 2}\n')
    with pytest.raises(RecordError, match="line 2 is damaged"):
        list(lines.read())


def test_a_full_disk_leaves_the_list_as_it_was(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: the kernel writes as much as fits, then refuses."""
    code = (
        "import resource, sys; from pathlib import Path; from agent.batch.json_lines import JsonLines\n"
        "from pydantic import BaseModel; lines = JsonLines(Path(sys.argv[1]), BaseModel); lines.append({'n': 1})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))\n"
        "try: lines.append({'n': 2, 'long': 'x' * 100})\n"
        "except Exception as error: print(type(error).__name__, error.full)"
    )
    path = tmp_path / "list.jsonl"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "RecordError True\n"
    assert path.read_bytes() == b'{"n":1}\n'

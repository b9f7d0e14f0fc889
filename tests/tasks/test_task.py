"""Tasks are read and parsed as text; whatever is wrong with them becomes one clear line."""

import hashlib
import os
from pathlib import Path

import pytest

from agent.errors import EXIT_USAGE, TaskError
from agent.tasks.task import load_task

GOOD = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x

def get_inputs():
    return [torch.rand(4)]

def get_init_inputs():
    return []
"""


def test_a_good_task_is_its_text(tmp_path: Path) -> None:
    path = tmp_path / "row softmax é" / "model.py"
    path.parent.mkdir()
    path.write_text(GOOD, encoding="utf-8")
    task = load_task(path)
    assert (task.text, task.name, task.path) == (GOOD, "row softmax é", path)
    assert task.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_name_is_the_file_unless_the_file_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "19_ReLU.py").write_text(GOOD)
    assert load_task(tmp_path / "19_ReLU.py").name == "19_ReLU"


def test_line_ends_are_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_bytes(GOOD.replace("\n", "\r\n").encode())
    assert "\r\n" in load_task(tmp_path / "model.py").text


def test_nothing_of_the_task_is_executed(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(GOOD + f"\nopen({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit(7)\n")
    load_task(tmp_path / "model.py")
    assert not (tmp_path / "ran").exists()


def test_names_bound_below_if_and_by_import_count(tmp_path: Path) -> None:
    text = "from x import Model\nif True:\n    def get_inputs(): ...\ntry:\n    get_init_inputs = list\nfinally: ...\n"
    (tmp_path / "model.py").write_text(text)
    assert load_task(tmp_path / "model.py").text == text


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"class Model: pass\n", ["no function `get_inputs()`", "get_init_inputs"]),
        (GOOD.replace("class Model", "class Net").encode(), ["no class `Model"]),
        (b"class A:\n    class Model: pass\ndef f():\n    def get_inputs(): ...\n", ["Model", "get_inputs"]),
        (b"def f(:\n", ["not valid Python", "line 1"]),
        (b"x = 1\0\n", ["null bytes"]),
        (b"\xff\xfe\n", ["not UTF-8", "byte 0"]),
        (b"(" * 5000, ["model.py"]),
        (b"x = " + b"-" * 200_000 + b"1", ["nested too deeply"]),
        (b"", ["Model"]),
    ],
)
def test_a_bad_text_is_one_line(tmp_path: Path, data: bytes, words: list[str]) -> None:
    (tmp_path / "model.py").write_bytes(data)
    with pytest.raises(TaskError) as caught:
        load_task(tmp_path / "model.py")
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "\n" not in str(caught.value)
    assert "None" not in str(caught.value)
    assert caught.value.exit_code == EXIT_USAGE


def test_missing_folder_and_unreadable(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="there is no file"):
        load_task(tmp_path / "none.py")
    (tmp_path / "model.py").write_text(GOOD)
    with pytest.raises(TaskError, match=r"is a folder.*give .*model\.py"):
        load_task(tmp_path)
    os.mkfifo(tmp_path / "pipe.py")
    with pytest.raises(TaskError, match="no regular file"):
        load_task(tmp_path / "pipe.py")
    os.symlink("loop.py", tmp_path / "loop.py")
    with pytest.raises(TaskError, match="cannot read"):
        load_task(tmp_path / "loop.py")


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_bytes(b"#" * (5 << 20))
    with pytest.raises(TaskError, match="larger than 4 MiB"):
        load_task(tmp_path / "model.py")

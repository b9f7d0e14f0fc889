"""Run folders are made whole or not at all, replaced atomically, and written by one process at a time."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent.config import Config, load_config
from agent.errors import ConfigError, RecordError
from agent.tasks.task import Task, text_sha256
from agent.trajectory.folder import RunFolder

TEXT = "class Model: 'é \U0001f600'\n"


def make_task(name: str = "row softmax/é") -> Task:
    return Task(path=Path("/tasks/über uns/model.py"), name=name, text=TEXT, sha256=text_sha256(TEXT))


def test_a_new_run_is_complete_and_named_after_its_task(tmp_path: Path) -> None:
    config = load_config(settings=["limits.turns=7"])
    folder = RunFolder.create(tmp_path / "runs", make_task(), config)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d{4}-row-softmax-é-[0-9a-f]{8}", folder.run_id)
    assert sorted(path.name for path in folder.path.iterdir()) == ["config.json", "logs", "task.json", "workspace"]
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [folder.run_id]
    again = RunFolder.open(folder.path)
    assert again.config() == config
    assert again.task() == make_task()


def test_names_are_unique_and_usable(tmp_path: Path) -> None:
    names = ["a", "a", "../../etc", "x" * 300, "...", "\U0001f600"]
    folders = [RunFolder.create(tmp_path, make_task(name), Config()) for name in names]
    assert len({folder.path for folder in folders}) == len(names)
    assert all(folder.path.parent == tmp_path for folder in folders)


def test_a_task_that_was_tampered_with_is_noticed(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, make_task(), Config())
    record = json.loads((folder.path / "task.json").read_text())
    for damage in ({"text": "other"}, {"text": "\ud800"}, {"text": 5}, {"path": 4}):
        folder.write_json("task.json", record | damage)
        with pytest.raises(ConfigError, match="damaged"):
            folder.task()


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not a run folder.*config\.json"):
        RunFolder.open(tmp_path)
    with pytest.raises(ConfigError, match="is not a run folder"):
        RunFolder.open(tmp_path / "none")


def test_a_runs_folder_that_cannot_be_written_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot write in the runs folder .*file.*-o") as caught:
        RunFolder.create(tmp_path / "file" / "runs", make_task(), Config())
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="cannot write in the runs folder /proc"):
        RunFolder.create(Path("/proc/runs"), make_task(), Config())


CREATE = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from agent.config import Config
from agent.errors import AgentError
from agent.tasks.task import Task
from agent.trajectory.folder import RunFolder
try:
    RunFolder.create(Path(sys.argv[1]), Task(Path("/x/model.py"), "x", "y" * 300_000, ""), Config())
except AgentError as error:
    print(type(error).__name__, error)
    print([str(path) for path in Path(sys.argv[1]).iterdir()])
"""


def in_bwrap(tmp_path: Path, *mounts: str, output: str) -> list[str]:
    import shutil

    bwrap = shutil.which("bwrap")
    if bwrap is None:
        pytest.skip("no bwrap")
    (tmp_path / "create.py").write_text(CREATE)
    inside = [sys.executable, str(tmp_path / "create.py"), output, str(Path.cwd())]
    argv = [bwrap, "--ro-bind", "/", "/", "--dev", "/dev", *mounts, *inside]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.bubblewrap
def test_a_read_only_runs_folder(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    error, left = in_bwrap(tmp_path, output=str(tmp_path / "runs"))
    assert error.startswith("ConfigError cannot write in the runs folder")
    assert "Read-only file system" in error
    assert left == "[]"


@pytest.mark.bubblewrap
def test_a_full_disk_leaves_no_half_made_run(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    error, left = in_bwrap(tmp_path, "--size", "100000", "--tmpfs", str(small), output=str(small))
    assert error.startswith("RecordError")
    assert "the disk is full" in error
    assert left == "[]"


def test_files_are_replaced_as_a_whole(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, make_task(), Config())
    folder.write_json("verdict.json", {"a": "\ud83d"})
    before = sorted(path.name for path in folder.path.iterdir())
    with pytest.raises(TypeError):
        folder.write_json("verdict.json", {"a": object()})
    assert json.loads((folder.path / "verdict.json").read_text()) == {"a": "\ud83d"}
    folder.write_text("report.md", "lone \ud83d\n")
    assert (folder.path / "report.md").read_text() == "lone \\ud83d\n"
    assert sorted([*before, "report.md"]) == sorted(path.name for path in folder.path.iterdir())


def test_one_writer_at_a_time_and_a_dead_one_does_not_count(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, make_task(), Config())
    code = (
        "import sys, time; from pathlib import Path; from agent.trajectory.folder import RunFolder\n"
        "with RunFolder(Path(sys.argv[1])).lock():\n    print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, folder.path], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(RecordError, match="in use by another process"), folder.lock():
        pass
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with folder.lock(), pytest.raises(RecordError, match="in use"), RunFolder(folder.path).lock():
        pass
    with folder.lock():
        pass

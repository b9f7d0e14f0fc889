"""Folders that a sandbox wrote into can always be removed."""

import os
from pathlib import Path

import pytest

from agent.sandbox.mounts import give_to, remove_tree
from agent.sandbox.orphans import sweep
from agent.sandbox.scratch import make_scratch, remove_scratch

DEEP = 3000


def nested(folder: Path) -> Path:
    """A folder with DEEP folders in one another, made as a submission would: a path of that length has no name."""
    folder.mkdir()
    at = os.open(folder, os.O_RDONLY)
    for _ in range(DEEP):
        os.mkdir("f", dir_fd=at)
        inner = os.open("f", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    return folder


def test_folders_that_nest_deeper_than_python_calls_itself_go_as_well(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    folder = nested(tmp_path / "deep")
    (folder / "link").symlink_to(kept)
    (folder / "closed").mkdir(mode=0o000)
    remove_tree(folder)
    assert not os.path.lexists(folder) and kept.is_dir()


def test_what_is_not_there_is_removed_already(tmp_path: Path) -> None:
    remove_tree(tmp_path / "nothing")
    (tmp_path / "kept").mkdir(mode=0o500)
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    remove_tree(tmp_path / "link")
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o500


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_such_a_folder_is_given_away_as_well(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    folder = nested(tmp_path / "deep")
    (folder / "f" / "link").symlink_to(kept)
    give_to(folder, (12345, 12345))
    about = (folder / Path("f", *["f"] * 200)).stat()
    assert (about.st_uid, about.st_gid, kept.stat().st_uid) == (12345, 12345, os.getuid())
    assert (folder / "f" / "link").lstat().st_uid == 12345
    remove_tree(folder)


def test_one_folder_that_cannot_go_does_not_keep_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.sandbox.scratch.tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("agent.sandbox.orphans.is_abandoned", lambda labels: True)
    for _ in range(2):
        nested(make_scratch({}) / "builds")
    tried: list[Path] = []

    def removing(folder: Path) -> None:
        tried.append(folder)
        if len(tried) == 1:
            raise PermissionError(folder)
        remove_tree(folder)

    monkeypatch.setattr("agent.sandbox.orphans.remove_tree", removing)
    sweep("bubblewrap")
    assert len(tried) == 2 and [path.exists() for path in tried] == [True, False]
    remove_tree(tried[0])


def test_a_scratch_folder_that_cannot_be_emptied_keeps_its_owners_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_scratch({})
    monkeypatch.setattr("agent.sandbox.scratch.remove_tree", lambda path: None)
    remove_scratch(folder)
    assert (folder / "owner.json").is_file() and (folder / "tmp").is_dir()
    monkeypatch.undo()
    remove_scratch(folder)
    assert not folder.exists()

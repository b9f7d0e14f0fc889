"""Folders that foreign code writes into go away, whatever lies in them."""

import os
from pathlib import Path

import pytest
from referee import removal

from tests.sandbox.test_mounts import nested


def test_folders_that_nest_deeper_than_python_calls_itself(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    folder = nested(tmp_path / "deep")
    (folder / "link").symlink_to(kept)
    (folder / "closed").mkdir(mode=0o000)
    removal.remove(folder)
    assert not os.path.lexists(folder) and kept.is_dir()


def test_what_is_not_there_and_links_are_left(tmp_path: Path) -> None:
    removal.remove(tmp_path / "nothing")
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    removal.remove(tmp_path / "link")
    assert (tmp_path / "kept").is_dir()


def test_a_scratch_folder_goes_after_an_error_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ValueError, match="foreign"), removal.scratch("one-") as folder:
        nested(folder / "deep")
        raise ValueError("foreign")
    assert list(tmp_path.iterdir()) == []

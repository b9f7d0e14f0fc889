"""Copies of submissions out of hostile folders."""

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.sandbox.snapshot import SnapshotError, copy_submission


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "kernels" / "inner").mkdir(parents=True)
    (folder / "model_new.py").write_text("class ModelNew: ...\n")
    (folder / "kernels" / "a.cpp").write_text("int a;\n")
    (folder / "kernels" / "inner" / "b.h").write_text("int b;\n")
    (folder / "model.py").write_text("not part of it\n")
    return folder


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_copies_the_submission_and_nothing_else(source: Path, tmp_path: Path) -> None:
    (source / "kernels" / "__pycache__").mkdir()
    for name in ("shipped.so", "a.o", "__pycache__/x.pyc"):
        (source / "kernels" / name).write_bytes(b"binary")
    target = tmp_path / "best" / "submission"
    copy_submission(source, target)
    assert content_of(target) == {
        "model_new.py": b"class ModelNew: ...\n",
        "kernels/a.cpp": b"int a;\n",
        "kernels/inner/b.h": b"int b;\n",
    }
    modes = {path.stat().st_mode & 0o777 for path in target.rglob("*")}
    assert modes == {0o755, 0o644}
    assert os.listdir(target.parent) == ["submission"]


def test_the_hash_covers_names_and_contents(source: Path, tmp_path: Path) -> None:
    first = copy_submission(source, tmp_path / "1")
    assert copy_submission(source, tmp_path / "2") == first == copy_submission(tmp_path / "1", tmp_path / "3")
    (source / "kernels" / "a.cpp").rename(source / "kernels" / "c.cpp")
    renamed = copy_submission(source, tmp_path / "4")
    (source / "kernels" / "c.cpp").write_text("int c;\n")
    assert len({first, renamed, copy_submission(source, tmp_path / "5")}) == 3


def test_an_existing_copy_is_replaced_whole(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "best"
    copy_submission(source, target)
    (source / "kernels" / "inner" / "b.h").unlink()
    copy_submission(source, target)
    assert set(content_of(target)) == {"model_new.py", "kernels/a.cpp"}
    (source / "kernels" / "link").symlink_to("/etc/passwd")
    with pytest.raises(SnapshotError):
        copy_submission(source, target)
    assert set(content_of(target)) == {"model_new.py", "kernels/a.cpp"}
    assert sorted(os.listdir(tmp_path)) == ["best", "workspace"]


def test_a_single_file_submission(source: Path, tmp_path: Path) -> None:
    import shutil

    shutil.rmtree(source / "kernels")
    copy_submission(source, tmp_path / "copy")
    assert set(content_of(tmp_path / "copy")) == {"model_new.py"}


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda kernels: (kernels / "x.cpp").symlink_to("/etc/passwd"), "symbolic link"),
        (lambda kernels: (kernels / "x").symlink_to("/etc"), "symbolic link"),
        (lambda kernels: os.mkfifo(kernels / "x.cpp"), "regular file"),
        (lambda kernels: (kernels / "big.cpp").write_bytes(b"x" * 200_000), "more than 100000 bytes"),
        (lambda kernels: [(kernels / f"{i}.cpp").write_text("") for i in range(60)], "more than 50 files"),
        (lambda kernels: (kernels / "/".join("d" * 20)).mkdir(parents=True), "deeper"),
    ],
)
def test_what_cannot_be_copied_is_a_finding(source: Path, tmp_path: Path, make, says: str) -> None:  # type: ignore[no-untyped-def]
    make(source / "kernels")
    with pytest.raises(SnapshotError, match=says):
        copy_submission(source, tmp_path / "copy", max_bytes=100_000, max_files=50)
    assert not (tmp_path / "copy").exists()


def test_links_at_the_top_are_not_followed(source: Path, tmp_path: Path) -> None:
    (source / "kernels").rename(tmp_path / "elsewhere")
    (source / "kernels").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SnapshotError, match="kernels: a symbolic link"):
        copy_submission(source, tmp_path / "copy")


def test_an_empty_workspace_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SnapshotError, match=r"no model_new\.py"):
        copy_submission(tmp_path / "empty", tmp_path / "copy")


def test_names_from_hell(source: Path, tmp_path: Path) -> None:
    (source / "kernels" / "ü b.cpp").write_text("1")
    (Path(os.fsdecode(os.fsencode(source / "kernels") + b"/\xff\n.cpp"))).write_text("2")
    copy_submission(source, tmp_path / "copy")
    assert os.listdir(os.fsencode(tmp_path / "copy" / "kernels")).count(b"\xff\n.cpp") == 1
    os.mkfifo(os.fsencode(source / "kernels") + b"/\xfe\x1b[31m")
    with pytest.raises(SnapshotError) as caught:
        copy_submission(source, tmp_path / "copy2")
    str(caught.value).encode()
    assert "\x1b" not in str(caught.value)


def test_a_folder_that_is_swapped_for_a_link_leads_nowhere(source: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "b.h").write_text("SECRET")
    inner, aside = source / "kernels" / "inner", source / "kernels" / "aside"
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            inner.rename(aside)
            inner.symlink_to(secret)
            inner.unlink()
            aside.rename(inner)

    racer = threading.Thread(target=swap)
    racer.start()
    seen = set()
    try:
        for number in range(300):
            try:
                copy_submission(source, tmp_path / f"copy{number}")
                seen.update(content_of(tmp_path / f"copy{number}").values())
            except SnapshotError:
                pass
    finally:
        stop.set()
        racer.join()
    assert b"int a;\n" in seen and b"SECRET" not in seen


def test_trouble_with_the_target_is_not_the_submissions(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        copy_submission(source, tmp_path / "file" / "copy")


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.text("abc._", min_size=1, max_size=6), st.binary(max_size=50), min_size=1, max_size=5))
def test_hashes_agree_exactly_when_the_files_do(files: dict[str, bytes]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as base:
        kernels = Path(base, "w", "kernels")
        kernels.mkdir(parents=True)
        kept = {}
        for name, data in files.items():
            if name not in (".", "..") and not name.endswith((".so", ".o", ".a", ".pyc")):
                (kernels / name).write_bytes(data)
                kept[f"kernels/{name}"] = data
        if not kept:
            return
        first = copy_submission(Path(base, "w"), Path(base, "copy"))
        assert content_of(Path(base, "copy")) == kept
        name = sorted(kept)[0]
        Path(base, "w", name).write_bytes(kept[name] + b"!")
        assert copy_submission(Path(base, "w"), Path(base, "copy")) != first

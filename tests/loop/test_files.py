"""write_file and edit_file change a file as a whole or not at all, and say why not."""

from pathlib import Path

import pytest
from sessions import MakeSession
from stand_ins import Turns

from agent.loop.actions import EditFile, WriteFile
from agent.loop.files import content_sha256, edit_file, resume_edit, unified_diff, write_file
from agent.loop.workbench import Workbench


@pytest.fixture
def bench(make_session: MakeSession) -> Workbench:
    return make_session(Turns()).bench


@pytest.fixture
def workspace(bench: Workbench) -> Path:
    return bench.logs.parent / "workspace"


def test_write_creates_folders_and_says_what_it_did(bench: Workbench, workspace: Path) -> None:
    outcome = write_file(bench, WriteFile(path="kernels/a.cpp", content="é\n"))
    assert outcome.status == "ok"
    assert outcome.text == "Created kernels/a.cpp: 1 lines, 3 bytes."
    assert (workspace / "kernels/a.cpp").read_text() == "é\n"
    assert outcome.diff == "--- /dev/null\n+++ b/kernels/a.cpp\n@@ -0,0 +1 @@\n+é\n"
    again = write_file(bench, WriteFile(path="/workspace/kernels/a.cpp", content="x"))
    assert again.text.startswith("Replaced")
    assert (workspace / "kernels/a.cpp").read_text() == "x"


def test_writing_model_py_is_allowed_and_explained(bench: Workbench) -> None:
    assert "the judge uses the original" in write_file(bench, WriteFile(path="model.py", content="")).text


@pytest.mark.parametrize(("path", "why"), [("../out", "cannot be reached"), ("folder", "it is a folder")])
def test_a_write_that_fails_says_why(bench: Workbench, workspace: Path, path: str, why: str) -> None:
    (workspace / "folder").mkdir()
    outcome = write_file(bench, WriteFile(path=path, content="x"))
    assert (outcome.status, outcome.diff) == ("failed", None)
    assert why in outcome.text


def test_edit_replaces_one_exact_text(bench: Workbench, workspace: Path) -> None:
    (workspace / "a.py").write_bytes(b"one\r\ntwo\nthree")
    outcome = edit_file(bench, EditFile(path="a.py", old="two\n", new="2\n\n"))
    assert (outcome.status, outcome.text) == ("ok", "Edited a.py at line 2.")
    assert (workspace / "a.py").read_bytes() == b"one\r\n2\n\nthree"
    assert outcome.diff is not None
    assert "-two\n" in outcome.diff
    assert "\\ No newline at end of file" in outcome.diff


def test_edit_fails_loudly_when_the_text_is_not_unique(bench: Workbench, workspace: Path) -> None:
    (workspace / "a.py").write_text("x = 1\ny = 2\nx = 1\n")
    outcome = edit_file(bench, EditFile(path="a.py", old="x = 1", new="z"))
    assert outcome.status == "failed"
    assert "occurs 2 times, beginning at lines 1, 3" in outcome.text
    (workspace / "b.py").write_text("aaa")
    assert "occurs 2 times" in edit_file(bench, EditFile(path="b.py", old="aa", new="b")).text
    assert (workspace / "b.py").read_text() == "aaa"


def test_edit_fails_loudly_when_the_text_is_absent(bench: Workbench, workspace: Path) -> None:
    (workspace / "a.py").write_text("def forward(self, x):\n    return x\n")
    outcome = edit_file(bench, EditFile(path="a.py", old="def forward(self, y):\n", new=""))
    assert outcome.status == "failed"
    assert "does not occur" in outcome.text
    assert "    1  def forward(self, x):" in outcome.text
    assert "same text" in edit_file(bench, EditFile(path="a.py", old="return x", new="return x")).text


@pytest.mark.parametrize(
    ("path", "why"),
    [("none.py", "no such file"), ("latin.txt", "not UTF-8 text (byte 3)"), ("big", "larger than 4 MiB")],
)
def test_what_cannot_be_edited(bench: Workbench, workspace: Path, path: str, why: str) -> None:
    (workspace / "latin.txt").write_bytes(b"caf\xe9")
    (workspace / "big").write_bytes(b"x" * (5 << 20))
    outcome = edit_file(bench, EditFile(path=path, old="a", new="b"))
    assert outcome.status == "failed"
    assert why in outcome.text


@pytest.mark.parametrize(
    ("old", "new", "content"), [("two", "2", "one two three"), ("a", "aa", "b a b\nb"), ("x = 1", "x", "x y x = 1 x\n")]
)
def test_an_interrupted_edit_is_made_exactly_once(
    bench: Workbench, workspace: Path, old: str, new: str, content: str
) -> None:
    edit = EditFile(path="a", old=old, new=new)
    (workspace / "a").write_text(content)
    before = content_sha256(bench, "a")
    once = edit_file(bench, edit)
    assert resume_edit(bench, edit, before) == once
    assert (workspace / "a").read_text() == content.replace(old, new)
    (workspace / "a").write_text(content)
    assert resume_edit(bench, edit, before) == once
    assert (workspace / "a").read_text() == content.replace(old, new)
    (workspace / "a").write_text("something else")
    assert resume_edit(bench, edit, before) is None


def test_a_diff_of_huge_files_is_left_out() -> None:
    assert unified_diff("a", "x\n" * 3000, "y\n") is None
    assert unified_diff("a", "x\n", "x\n") == ""

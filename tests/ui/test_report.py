"""report.md and report.html, made from a run's folder alone; and the use of a submission outside the harness."""

import html.parser
import re
import subprocess
import sys
from pathlib import Path

import pytest
import terminal
from recorded import MODEL, Recorder, accepted, rejected, submission, whole_run

from agent.cli import main
from agent.trajectory.events import StopReason
from agent.ui.outcome import read_outcome
from agent.ui.portable import make_portable, submitted_files
from agent.ui.report import markdown_escape, write_report


def report_of(run: Recorder) -> tuple[str, str]:
    markdown, page = write_report(read_outcome(run.folder))
    return markdown.read_text(encoding="utf-8"), page.read_text(encoding="utf-8")


def test_the_report_says_what_was_judged_and_how_to_use_it(tmp_path: Path) -> None:
    run = whole_run(tmp_path)
    text, page = report_of(run)
    assert text.startswith("# bias-relu: accepted, reward 3: faster than eager and torch.compile\n")
    assert "| torch.compile | 498 µs | 1.210× | 1.160–1.260 | faster |" in text
    assert "| candidate | 412 µs |" in text
    assert "two-core processor" in text
    assert "**Turn 2.** A typing mistake; I look at the file first." in text
    assert "the best submission (turn 3), which is also the final state" in text
    assert f"sys.path.insert(0, '{run.folder.best}')" in text
    assert "no price" in text
    assert "8000 in, 600 out" in text
    for sha256 in re.findall(r"`([0-9a-f]{64})`", text):
        assert sha256 in page


def test_it_can_be_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = whole_run(tmp_path)
    first = report_of(run)
    (run.folder.path / "report.md").unlink()
    (run.folder.path / "report.html").unlink()
    assert main(["report", str(run.folder.path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        str(run.folder.path / name) for name in ("report.md", "report.html")
    ]
    assert report_of(run) == first


def test_a_rejection_is_reported_with_its_reasons_and_without_instructions(tmp_path: Path) -> None:
    run = Recorder(tmp_path)
    submission(run.folder.workspace)
    run.reply(1, "done")
    run.did(1, "submit")
    run.stop()
    run.verdict("final", rejected())
    run.end(reward=-1, turns=1)
    text, page = report_of(run)
    assert "rejected, reward -1" in text
    assert "- `numeric.mismatch`: output 0 differs by 0.3 at \\[1, 2\\]" in text
    assert "How to use it" not in text
    assert "How to use it" not in page
    assert not (run.folder.workspace / "use.py").exists()


def test_a_run_without_any_submission_has_a_report(tmp_path: Path) -> None:
    run = Recorder(tmp_path)
    run.stop(StopReason.BACKEND, "unreachable: nobody answers")
    run.end(StopReason.BACKEND, reward=None, turns=0)
    text, _ = report_of(run)
    assert text.startswith("# bias-relu: nothing was judged")
    assert "could not be reached any more (unreachable: nobody answers)" in text


def test_a_better_final_state_is_the_one_that_counts(tmp_path: Path) -> None:
    run = Recorder(tmp_path)
    submission(run.folder.workspace)
    run.best(1, 1.1)
    run.verdict("best", rejected())
    run.verdict("final", accepted(reward=2), sha256="cd" * 32)
    run.end(reward=2)
    text, _ = report_of(run)
    assert "accepted, reward 2: faster than eager" in text
    assert "the final state; best in between: rejected" in text
    assert (run.folder.workspace / "use.py").exists()
    assert not (run.folder.best / "use.py").exists()


def test_foreign_text_cannot_become_markup(tmp_path: Path) -> None:
    run = Recorder(tmp_path)
    run.reply(1, "<script>alert(1)</script> | [click](http://x) **bold** \x1b[2J")
    run.did(1, "bash", {"command": "<img src=x onerror=y>"}, status="failed", exit_code=1, text="<b>|</b>")
    run.stop()
    run.end(reward=None)
    text, page = report_of(run)
    tags = Tags()
    tags.feed(page)
    assert tags.seen.isdisjoint({"script", "img"})
    assert "\\<script\\>" in text
    assert "\\[click\\]" in text
    assert "\x1b" not in text + page
    assert "http://" not in re.sub(r"http://(x|127)", "", page)


class Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)


def test_markdown_is_escaped() -> None:
    assert markdown_escape("a|b\n`c` <d> *e*") == "a\\|b \\`c\\` \\<d\\> \\*e\\*"


def test_the_added_files_are_not_counted_as_submitted(tmp_path: Path) -> None:
    submission(tmp_path)
    make_portable(tmp_path, target="cpu", model_text=MODEL)
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "cpu_extension.so").write_bytes(b"x")
    names = [str(file.relative_to(tmp_path)) for file in submitted_files(tmp_path)]
    assert names == ["model_new.py", "kernels/bias_relu.cpp", "kernels/bias_relu_binding.cpp"]


def test_a_cuda_submission_links_what_it_includes(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "model_new.py").write_text("import cuda_extension\n")
    (tmp_path / "kernels" / "gemm.cu").write_text("#include <cublas_v2.h>\n#include <cublasLt.h>\n")
    use = make_portable(tmp_path, target="cuda", model_text=MODEL).read_text()
    compile(use, "use.py", "exec")
    assert "'-lcublas'" in use
    assert "'-lcublasLt'" in use
    assert "-lcudnn" not in use
    assert 'EXTENSION = "cuda_extension"' in use


@pytest.mark.torch
def test_a_submission_can_be_used_without_the_harness(tmp_path: Path) -> None:
    """As report.md says, from another folder, in a process that knows nothing of this project."""
    run = whole_run(tmp_path / "Größe and space")
    text, _ = report_of(run)
    snippet = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert snippet
    code = snippet.group(1).replace("*init_inputs", "32") + (
        "import torch\nfrom model_new import ModelNew as Same\nassert Same is ModelNew\n"
        "x = torch.randn(8, 32)\nassert torch.equal(model(x), torch.relu(x + model.bias))\nprint('it works')\n"
    )
    env = {name: value for name, value in terminal.environment().items() if name != "PYTHONPATH"}
    used = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=env | {"MAX_JOBS": "2"}
    )
    assert used.stdout.strip() == "it works", used.stderr
    compared = subprocess.run(
        [sys.executable, str(run.folder.best / "use.py")], cwd=tmp_path, capture_output=True, text=True, env=env
    )
    assert "differs from Model by at most 0 " in compared.stdout, compared.stderr


@pytest.mark.parametrize(
    ("reason", "reward", "words"),
    [
        (StopReason.SANDBOX, None, "rejected, not scored: it was cut off"),
        (StopReason.SUBMITTED, -1, "rejected, reward -1"),
    ],
)
def test_trouble_is_not_shown_as_a_bad_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reason: StopReason, reward: int | None, words: str
) -> None:
    run = Recorder(tmp_path)
    run.stop(reason)
    run.verdict("final", rejected())
    run.end(reason, reward=reward)
    assert main(["show", str(run.folder.path)]) == 0
    assert words in capsys.readouterr().out
    assert main(["report", str(run.folder.path)]) == 0
    assert words in (run.folder.path / "report.md").read_text().replace("\\", "")

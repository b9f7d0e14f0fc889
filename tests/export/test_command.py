"""`agent export` as a person types it: exit codes, one clear line for what is wrong, one object with --json."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from recorded_runs import RECORDED, ROOT, lines_of, write_run

from agent.cli import main
from agent.commands.export import FormatName
from agent.export.formats import FORMATS

EXAMPLES = str(RECORDED[0].parents[1])


def test_the_examples_become_a_data_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    filters = ("--filter", "speedup_eager >= 3", "--paper-filters", "all")
    arguments = [EXAMPLES, "--format", "openai", *filters, "-o", str(out)]
    assert main(["export", *arguments]) == 0
    said = capsys.readouterr()
    verdicts = [json.loads((path / "verdict.json").read_text())["best"] for path in RECORDED]
    runs, best = len(RECORDED), sum(verdict["speedup"]["eager"]["ratio"] >= 3 for verdict in verdicts)
    assert 0 < best < runs
    assert f"{runs}  runs found" in said.out
    assert f"{best}  filter: speedup_eager >= 3  (-{runs - best})" in said.out
    assert f"{best} rows from {best} runs of {best} tasks" in said.out
    assert len(lines_of(out / "train.jsonl")) == best
    assert main(["export", *arguments]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["export", *arguments, "--overwrite"]) == 0


def test_json_is_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", EXAMPLES, "--format", "trl-sft", "-o", str(tmp_path / "out"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["rows"], data["runs"], data["tasks"]) == (len(RECORDED),) * 3
    assert [file["path"] for file in data["files"]] == ["train.jsonl"]


def test_nothing_left_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [EXAMPLES, "--format", "trl-sft", "--filter", "turns > 100", "-o", str(tmp_path / "out")]
    assert main(["export", *arguments]) == 1
    assert "nothing was written" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--format", "csv"], "csv"),
        (["--format", "openai", "--filter", "rewrd > 1"], "did you mean reward?"),
        (["--format", "openai", "--as", "parquet"], "--as jsonl"),
        (["--format", "openai", "--split", "train:2"], "train:0.98,val:0.02"),
        (["--format", "openai", "--max-per-task", "0"], "max-per-task"),
        ([], "--format"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert main(["export", EXAMPLES, *arguments, "-o", str(tmp_path / "out")]) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert "Traceback" not in said.err
    assert list(tmp_path.iterdir()) == []


def test_the_command_offers_every_format() -> None:
    assert [name.value for name in FormatName] == list(FORMATS)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path) -> None:
    write_run(tmp_path / "runs")
    code = (
        "import sys; sys.modules['pyarrow'] = None\nfrom agent.cli import main\n"
        f"sys.exit(main(['export', {str(tmp_path / 'runs')!r}, '--format', 'verl', '-o', {str(tmp_path / 'out')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert "pip install 'cuda-agent[parquet]'" in done.stderr


def test_other_formats_need_no_library(tmp_path: Path) -> None:
    write_run(tmp_path / "runs")
    code = (
        "import sys\nfor name in ('pyarrow', 'datasets', 'trl', 'verl', 'torch'): sys.modules[name] = None\n"
        "from agent.cli import main\n"
        f"sys.exit(main(['export', {str(tmp_path / 'runs')!r}, '--format', 'atif', '-o', {str(tmp_path / 'out')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr

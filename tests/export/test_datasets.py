"""`datasets` and pyarrow load every format: by the folder alone, with the very content that was written."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datasets", reason="datasets is not installed: pip install 'cuda-agent[trl]'")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'cuda-agent[parquet]'")

import datasets
import pyarrow.parquet
from recorded_runs import TURNS, accepted, lines_of, make_task, rejected, said, write_run

from agent.export.export import Request, export_runs
from agent.export.formats import FORMATS

pytestmark = pytest.mark.filterwarnings("default")
IDS = {"prompt_token_ids": (1, 2), "completion_token_ids": (3, 4), "logprobs": (-0.5, -1.5)}
SETS = [(name, layout) for name, found in FORMATS.items() for layout in found.layouts if layout != "files"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of every shape: with and without ids, reasoning, calls, speed-ups and prices."""
    folder = tmp_path_factory.mktemp("runs")
    for at in range(4):
        task = make_task(f"op{at}")
        write_run(folder, rejected(), task=task, turns=(said("no call at all"),))
        write_run(folder, accepted(reward=3, eager=2.0), task=task)
        write_run(folder, accepted(compile=1.2), task=task, turns=(said("a", reasoning="why", **IDS), said("b")))
        write_run(folder, accepted(eager=1.4), task=task, turns=(said("caf\u00e9 \u2028 \ud83d", **IDS),))
        write_run(folder, accepted(reward=1, eager=0.9), task=task, turns=TURNS[:2])
    return folder


def without_nulls(value: Any) -> Any:
    """Structs have every key; what has no value is null."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def exported(runs: Path, out: Path, format: str, layout: str) -> None:
    export_runs(Request((runs,), format, out, layout, split="train:0.5,val:0.5", jobs=1))


@pytest.mark.parametrize(("format", "layout"), SETS)
def test_the_folder_loads_as_it_is(runs: Path, tmp_path: Path, format: str, layout: str) -> None:
    exported(runs, tmp_path / "out", format, layout)
    exported(runs, tmp_path / "lines", format, "jsonl")
    files = json.loads((tmp_path / "out" / "card.json").read_bytes())["files"]
    assert {file["split"] for file in files} == {"train", "val"}
    for file in files:
        loaded = datasets.load_dataset(str(tmp_path / "out"), file["set"], cache_dir=str(tmp_path / "cache"))
        rows = loaded[file["split"]]
        assert len(rows) == file["rows"] > 0
        assert rows.column_names == list(FORMATS[format].sets[file["set"]])
        written = lines_of(tmp_path / "lines" / f"{Path(file['path']).stem}.jsonl")
        assert [without_nulls(row) for row in rows] == [without_nulls(row) for row in written]


@pytest.mark.parametrize("small", [1 << 11, 10 << 20])
@pytest.mark.parametrize("format", ["rl-steps", "trl-sft"])
def test_types_do_not_depend_on_what_stands_in_the_first_piece_of_a_file(
    runs: Path, tmp_path: Path, format: str, small: int
) -> None:
    exported(runs, tmp_path / "out", format, "jsonl")
    path = tmp_path / "out" / "train.jsonl"
    for backwards in (False, True):
        lines = sorted(path.read_bytes().splitlines(keepends=True), key=len, reverse=backwards)
        path.write_bytes(b"".join(lines))
        cache = str(tmp_path / f"cache-{backwards}")
        rows = datasets.load_dataset(str(tmp_path / "out"), cache_dir=cache, chunksize=small)["train"]
        assert [without_nulls(row) for row in rows] == [without_nulls(json.loads(line)) for line in lines]


def test_parquet_has_arguments_and_tools_as_text(runs: Path, tmp_path: Path) -> None:
    exported(runs, tmp_path / "out", "trl-sft", "parquet")
    table = pyarrow.parquet.read_table(tmp_path / "out" / "train.parquet")
    rows = table.to_pylist()
    texts = [call["function"]["arguments"] for row in rows for m in row["messages"] for call in m["tool_calls"] or ()]
    assert texts and all(isinstance(json.loads(text), dict) and "null" not in text for text in texts)
    assert all(isinstance(json.loads(row["tools"]), list) for row in rows)


def test_parquet_is_written_in_bounded_groups(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.export.files.GROUP_ROWS", 3)
    export_runs(Request((runs,), "trl-sft", tmp_path / "out", "parquet", jobs=1))
    file = pyarrow.parquet.ParquetFile(tmp_path / "out" / "train.parquet")
    sizes = [file.metadata.row_group(at).num_rows for at in range(file.metadata.num_row_groups)]
    assert sum(sizes) == file.metadata.num_rows == 20
    assert max(sizes) == 3


def test_rows_without_ids_say_so(runs: Path, tmp_path: Path) -> None:
    export_runs(Request((runs,), "rl-steps", tmp_path / "out", jobs=1))
    rows = lines_of(tmp_path / "out" / "train.jsonl")
    told = {(row["token_level"], row.get("why_not")) for row in rows}
    assert told == {(True, None), (False, "the server gave no ids"), (False, "some replies have no ids")}
    for row in rows:
        if row["token_level"]:
            assert row["response_mask"] == [1, 1]
            assert row["rewards"] == [0.0, float(row["reward"])]
            assert "messages" not in row
        else:
            assert "prompt_ids" not in row
            assert row["messages"]

"""Task sets from every source, and what is wrong with them: refused with a place, while the rest goes on."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agent.assets import asset
from agent.errors import ConfigError, TaskError
from agent.tasks.sets import load_tasks
from agent.tasks.task import load_task


def text(number: int = 0) -> str:
    return f"class Model:\n    n = {number}\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


def write_rows(path: Path, *rows: Any) -> Path:
    path.write_bytes(b"".join(row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in rows))
    return path


def ids(source: Path | str, *names: str) -> list[str]:
    return [task.name for task in load_tasks(source, names=names).tasks]


def test_a_folder_of_folders_and_files(tmp_path: Path) -> None:
    (tmp_path / "softmax").mkdir()
    (tmp_path / "softmax" / "model.py").write_text(text(1))
    (tmp_path / "gelu.py").write_text(text(2))
    (tmp_path / "notes").mkdir()
    (tmp_path / "setup.py").write_text("print('no task')\n")
    (tmp_path / "_private.py").write_text("no Python at all\n")
    (tmp_path / "README.md").write_text("words\n")
    found = load_tasks(tmp_path)
    assert [(task.name, task.path.name) for task in found.tasks] == [("gelu", "gelu.py"), ("softmax", "model.py")]
    assert [(Path(r.where).name, r.code) for r in found.refused] == [("setup.py", "not_a_task")]


def test_one_file_is_a_set_of_one_and_its_faults_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "gelu" / "model.py"
    path.parent.mkdir()
    path.write_text(text())
    assert load_tasks(path).tasks == (load_task(path),)
    path.write_text("x = 1\n")
    with pytest.raises(TaskError, match="no class `Model"):
        load_tasks(path)


def test_rows_of_jsonl(tmp_path: Path) -> None:
    path = write_rows(
        tmp_path / "ops.jsonl",
        {"ops": '["torch.nn.functional.relu", "nn.Linear"]', "data_source": "torch#2", "code": text(1)},
        b"\n",
        {"task_id": 7, "id": "no", "code": text(2)},
        {"name": "größe", "ops": ["torch.add"], "code": text(3) + "# é\n"},
        {"id": "", "ops": None, "code": text(4)},
    )
    found = load_tasks(path)
    assert [task.name for task in found.tasks] == ["00001-relu-linear", "7", "größe", "00005"]
    assert found.tasks[2].text == text(3) + "# é\n"
    assert str(found.tasks[2].path) == f"{path}:4"
    assert found.refused == ()


def test_bad_rows_are_refused_and_the_rest_goes_on(tmp_path: Path) -> None:
    path = write_rows(
        tmp_path / "bad.jsonl",
        b"{not json\n",
        {"id": "a", "code": text(1)},
        [1, 2],
        {"id": "b", "text": text(2)},
        b'{"id": "c", "code": "\xff"}\n',
        b'{"id": "d", "code": "\\ud800"}\n',
        {"id": "e", "code": 5},
        {"id": "f", "code": "def f(:"},
        {"id": "g", "code": "x" * (5 << 20)},
        b"[" * (9 << 20) + b"\n",
        b"[" * 100_000 + b"\n",
        {"id": "a", "code": text(1)},
        {"id": "z", "code": text(3)},
        b'{"id": "torn", "code": "clas',
    )
    found = load_tasks(path)
    assert [task.name for task in found.tasks] == ["a", "z"]
    assert [(int(r.where.rpartition(":")[2]), r.code) for r in found.refused] == [
        (1, "not_json"),
        (3, "missing_column"),
        (4, "missing_column"),
        (5, "not_utf8"),
        (6, "not_utf8"),
        (7, "not_a_task"),
        (8, "not_a_task"),
        (9, "too_large"),
        (10, "too_large"),
        (11, "not_json"),
        (12, "duplicate"),
        (14, "not_json"),
    ]
    assert all("\n" not in r.detail for r in found.refused)


def test_an_id_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    names = ("a\0b", "half \ud800", "new\nline", "../up", "good")
    found = load_tasks(write_rows(tmp_path / "tasks.jsonl", *({"id": id, "code": text()} for id in names)))
    assert [task.name for task in found.tasks] == ["new\nline", "../up", "good"]
    assert [(Path(refused.where).name, refused.detail) for refused in found.refused] == [
        ("tasks.jsonl:1", "its id 'a\\x00b' holds a NUL character"),
        ("tasks.jsonl:2", "its id holds half of a surrogate pair"),
    ]


def test_the_same_text_counts_once_where_only_the_row_names_it(tmp_path: Path) -> None:
    path = write_rows(
        tmp_path / "twice.jsonl",
        {"ops": "a", "code": text()},
        {"ops": "b", "code": text()},
        {"id": "x", "code": text()},
    )
    found = load_tasks(path)
    assert [task.name for task in found.tasks] == ["00001-a", "x"]
    assert [(r.where, r.code) for r in found.refused] == [(f"{path}:2", "duplicate")]
    assert f"{path}:1" in found.refused[0].detail


def test_one_id_with_two_texts_names_both_places(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "x.jsonl", {"id": "a", "code": text(1)}, {"id": "a", "code": text(2)})
    with pytest.raises(ConfigError, match="id a") as caught:
        load_tasks(path)
    assert f"{path}:1 and {path}:2" in caught.value.message
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "model.py").write_text(text(1))
    (tmp_path / "a.py").write_text(text(2))
    with pytest.raises(ConfigError, match=r"model\.py and .*a\.py"):
        load_tasks(tmp_path)


def test_parquet_reads_as_jsonl_does(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"ops": '["torch.relu"]', "data_source": "torch#1", "code": text(n)} for n in range(600)]
    rows[3] = {"ops": "bad", "data_source": "torch#1", "code": "def f(:"}
    write_rows(tmp_path / "ops.jsonl", *rows)
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "ops.parquet")
    lines, columns = load_tasks(tmp_path / "ops.jsonl"), load_tasks(tmp_path / "ops.parquet")
    assert [(t.name, t.sha256) for t in columns.tasks] == [(t.name, t.sha256) for t in lines.tasks]
    assert len(columns.tasks) == 599
    assert [(r.where.rpartition(":")[2], r.code) for r in columns.refused] == [("4", "not_a_task")]


def test_parquet_with_bytes_nulls_and_other_columns(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    codes = pyarrow.array([text(1).encode(), b"\xff\xfe", None], pyarrow.binary())
    broken = codes.view(pyarrow.string())  # what a writer in another language can leave behind
    for kind, column in {"binary": codes, "string": broken}.items():
        path = tmp_path / f"{kind}.parquet"
        parquet.write_table(pyarrow.table({"code": column, "id": pyarrow.array([1, 2, 3])}), path)
        found = load_tasks(path)
        assert [task.name for task in found.tasks] == ["1"]
        assert [r.code for r in found.refused] == ["not_utf8", "missing_column"]
    parquet.write_table(pyarrow.table({"text": ["x"]}), tmp_path / "other.parquet")
    with pytest.raises(ConfigError, match=r"no column code .*its columns: text"):
        load_tasks(tmp_path / "other.parquet")
    (tmp_path / "torn.parquet").write_bytes((tmp_path / "other.parquet").read_bytes()[:-3])
    with pytest.raises(ConfigError, match="as parquet"):
        load_tasks(tmp_path / "torn.parquet")


def test_a_kernelbench_checkout(tmp_path: Path) -> None:
    root = tmp_path / "kb" / "KernelBench"
    for level, name in (("level1", "10_Tanh.py"), ("level1", "2_ReLU.py"), ("level4", "1_gpt2.py"), ("level1", "x.py")):
        (root / level).mkdir(parents=True, exist_ok=True)
        (root / level / name).write_text(text(len(name)))
    (root / "changelog").mkdir()
    everything = ["level1/2_ReLU", "level1/10_Tanh", "level4/1_gpt2"]
    assert ids(tmp_path / "kb") == ids(root) == everything
    assert ids(root, "level1/*") == everything[:2]
    assert load_tasks(root).tasks[1].text == text(len("10_Tanh.py"))


def test_shipped_examples_by_name() -> None:
    shipped = load_task(asset("examples") / "softmax-scale-mask" / "model.py")
    assert load_tasks("softmax-scale-mask").tasks == (shipped,)
    assert ids("rmsnorm-affine,softmax-scale-mask") == ["rmsnorm-affine", "softmax-scale-mask"]
    assert set(ids("examples")) >= {"rmsnorm-affine", "softmax-scale-mask"}
    with pytest.raises(ConfigError, match=r"no shipped example 'sofmax'.*softmax-scale-mask"):
        load_tasks("sofmax")


def test_names_choose_and_a_name_that_nothing_has_is_an_error(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "x.jsonl", *({"id": f"t{n}[x]", "code": text(n)} for n in range(30)))
    assert ids(path, "t7[x]", "t1*") == ["t1[x]", "t7[x]", *(f"t{n}[x]" for n in range(10, 20))]
    with pytest.raises(ConfigError, match=r"no task of .* has the id t7x .*did you mean t\d"):
        load_tasks(path, names=("t7x",))


def test_an_empty_set_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no task in"):
        load_tasks(tmp_path)
    write_rows(tmp_path / "x.jsonl", b"nothing\n", {"code": "x = 1"})
    with pytest.raises(ConfigError, match=r"2 refused, the first: .*x\.jsonl:1"):
        load_tasks(tmp_path / "x.jsonl")
    (tmp_path / "x.csv").write_text("code\n")
    with pytest.raises(ConfigError, match=r"is no task set .*\.parquet"):
        load_tasks(tmp_path / "x.csv")


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(text())
    (tmp_path / "latin.py").write_bytes("# é\n".encode("latin-1"))
    (tmp_path / "huge.py").write_bytes(b"#" * (5 << 20))
    os.mkfifo(tmp_path / "pipe.py")
    found = load_tasks(tmp_path)
    assert [task.name for task in found.tasks] == ["good"]
    assert [r.code for r in found.refused] == ["too_large", "not_utf8"]


def test_nothing_of_a_set_is_executed(tmp_path: Path) -> None:
    for name in ("model.py", "other.py"):
        (tmp_path / name).write_text(text() + f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit(7)\n")
    write_rows(tmp_path / "x.jsonl", {"code": (tmp_path / "model.py").read_text()})
    load_tasks(tmp_path)
    load_tasks(tmp_path / "x.jsonl")
    assert not (tmp_path / "ran").exists()

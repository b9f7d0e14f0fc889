"""verl's own dataset classes load what was exported."""

import warnings
from pathlib import Path
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what verl's own imports are deprecated for
    pytest.importorskip("verl.utils.dataset", reason="verl is not installed: pip install 'cuda-agent[verl]'")
    from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
    from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

from omegaconf import OmegaConf
from recorded_runs import TURNS, make_task, rejected, write_run
from tiny_chat import END, make_tokenizer

from agent.environments.rows import row_task
from agent.export.export import Request, export_runs

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]
# Each message alone must be templated as within the whole, which is how verl's class works.
TEMPLATE = """\
{%- if tools %}<|im_start|>tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function.name }} {{ call.function.arguments }}</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def tokenizer() -> Any:
    made = make_tokenizer()
    made.chat_template = TEMPLATE
    return made


def exported(tmp_path: Path, format: str, layout: str = "parquet") -> Path:
    export_runs(Request((tmp_path / "runs",), format, tmp_path / "out", layout, jobs=1))
    return tmp_path / "out" / f"train.{layout}"


@pytest.mark.parametrize("layout", ["parquet", "jsonl"])
def test_the_rl_dataset(tmp_path: Path, layout: str) -> None:
    tasks = {name: make_task(name) for name in ("relu", "gelu")}
    for task in tasks.values():
        write_run(tmp_path / "runs", task=task)
        write_run(tmp_path / "runs", rejected(), task=task)
    path = exported(tmp_path, "verl", layout)
    config = OmegaConf.create(
        {"max_prompt_length": 4096, "cache_dir": str(tmp_path / "cache"), "return_raw_chat": True}
    )
    rows = RLHFDataset(str(path), tokenizer(), config)
    assert len(rows) == 2
    batch = collate_fn([rows[0], rows[1]])
    assert list(batch["data_source"]) == ["cuda-agent"] * 2
    assert list(batch["agent_name"]) == ["kernel_agent"] * 2
    assert list(batch["index"]) == [0, 1]
    for prompt, model, extra in zip(batch["raw_prompt"], batch["reward_model"], batch["extra_info"], strict=True):
        task = tasks[extra["task_name"]]
        assert [message["role"] for message in prompt] == ["system", "user"]
        assert task.text in prompt[1]["content"]
        assert model == {"style": "rule", "ground_truth": task.sha256}
        assert row_task(extra).text == task.text
        assert (extra["split"], extra["runs"], extra["mean_reward"], extra["best_reward"]) == ("train", 2, 0.5, 2)


def test_the_multi_turn_sft_dataset(tmp_path: Path) -> None:
    write_run(tmp_path / "runs")
    write_run(tmp_path / "runs", task=make_task("gelu"))
    path, made = exported(tmp_path, "verl-sft"), tokenizer()
    rows = MultiTurnSFTDataset(str(path), made, {"max_length": 8192, "pad_mode": "no_padding", "truncation": "error"})
    assert len(rows) == 2
    for at in range(2):
        row = rows[at]
        trained = made.decode(row["input_ids"][row["loss_mask"] == 1])
        assert trained.count(END) == len(TURNS)
        assert "I look first." in trained and '<tool_call>bash {"command": "cat model.py"}' in trained
        assert all(text not in trained for text in ("result of bash", "You make a module", "This is model.py"))
        whole = made.decode(row["input_ids"])
        assert "result of bash" in whole and '"required": ["command"]' in whole

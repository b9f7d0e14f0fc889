"""TRL's own trainers take a step on what was exported, with the loss where it belongs."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="trl is not installed: pip install 'cuda-agent[trl]'")
pytest.importorskip("torch")

import datasets
import torch
from recorded_runs import TURNS, Writing, accepted, call, make_task, rejected, said, write_run
from tiny_chat import END, make_model, make_tokenizer, write_run_with_ids
from transformers import PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer

from agent.environments.rows import row_task
from agent.export.export import Request, export_runs
from agent.tasks.task import Task

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]
LAYOUTS = ("jsonl", "parquet")


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return make_tokenizer()


def exported(tmp_path: Path, format: str, layout: str = "jsonl", **fields: Any) -> Path:
    request = Request((tmp_path / "runs",), format, tmp_path / "out", layout, jobs=1, **fields)
    assert export_runs(request).rows > 0
    return tmp_path / "out"


def load(out: Path, name: str = "default", *, cache: Path) -> Any:
    """As a person would: the folder, by the head of its README."""
    return datasets.load_dataset(str(out), name, cache_dir=str(cache))["train"]


def settings(tmp_path: Path) -> dict[str, Any]:
    common = {"max_steps": 1, "per_device_train_batch_size": 2, "use_cpu": True, "report_to": [], "bf16": False}
    return {**common, "output_dir": str(tmp_path / "trained"), "logging_steps": 1, "save_strategy": "no"}


def losses(trainer: Any) -> list[float]:
    return [entry["train_loss"] for entry in trainer.state.log_history if "train_loss" in entry]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sft_has_its_loss_on_exactly_what_the_model_wrote(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast, layout: str
) -> None:
    write_run(tmp_path / "runs")
    write_run(tmp_path / "runs", task=make_task("gelu"))
    rows = load(exported(tmp_path, "trl-sft", layout), cache=tmp_path / "cache")
    args = SFTConfig(assistant_only_loss=True, max_length=None, **settings(tmp_path))
    trainer = SFTTrainer(make_model(tokenizer), args=args, train_dataset=rows, processing_class=tokenizer)
    for row in trainer.train_dataset:
        ids, labels = torch.tensor(row["input_ids"]), torch.tensor(row["labels"])
        trained = tokenizer.decode(ids[labels != -100])
        expected = [
            "\nI look first.\n<tool_call>\n" + json.dumps({"name": "bash", "arguments": {"command": "cat model.py"}}),
            '\n<tool_call>\n{"name": "verify", "arguments": {}}\n</tool_call>',
            '\n<tool_call>\n{"name": "submit", "arguments": {"summary": "fused"}}\n</tool_call>',
        ]
        assert all(text in trained for text in expected)
        assert trained.count(END) == len(TURNS)
        assert all(text not in trained for text in ("result of bash", "You make a module", "This is model.py", "null"))
        assert torch.equal(labels[labels != -100], ids[labels != -100])
        whole = tokenizer.decode(ids)
        assert "result of bash" in whole
        assert '"required": ["command"]' in whole and "null" not in whole  # the tools, as the model is shown them
    trainer.train()
    assert torch.isfinite(torch.tensor(losses(trainer))).all() and losses(trainer)


def test_a_reply_that_nothing_could_be_done_with_is_not_trained_on(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "runs", make_task())
    writing.reply(said("Let me think."), error="the reply held no action")
    writing.say("user", "There was no action in that.", origin="format_error")
    writing.reply(said("", call("browse", {"url": "x"})), statuses=("invalid",), error="there is no action 'browse'")
    writing.reply(said("", call("bash", "{broken"), call("verify")), statuses=("invalid", "ok"))
    writing.reply(TURNS[-1])
    writing.end(accepted())
    (row,) = load(exported(tmp_path, "trl-sft"), cache=tmp_path / "cache")
    text = json.dumps(row["messages"])
    assert all(gone not in text for gone in ("Let me think", "no action in that", "browse", "broken"))
    assert [message["role"] for message in row["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert [call["function"]["name"] for call in row["messages"][2]["tool_calls"]] == ["verify"]


def test_sft_takes_the_rows_of_ids_with_their_labels(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    write_run_with_ids(tmp_path / "runs", tokenizer, breaks=(2,))
    write_run(tmp_path / "runs", task=make_task("gelu"))
    out = exported(tmp_path, "trl-sft", "parquet")
    talks, rows = load(out, cache=tmp_path / "cache"), load(out, "tokens", cache=tmp_path / "cache")
    assert sorted(talks["token_level"]) == [False, True]
    assert [row["row"] for row in rows] == [0, 1]
    args = SFTConfig(max_length=None, **settings(tmp_path))
    trainer = SFTTrainer(make_model(tokenizer), args=args, train_dataset=rows, processing_class=tokenizer)
    batch = next(iter(trainer.get_train_dataloader()))
    trained = [
        tokenizer.decode(ids[labels != -100]) for ids, labels in zip(batch["input_ids"], batch["labels"], strict=True)
    ]
    assert "".join(sorted(trained)) == "".join(
        sorted(f"{a.text} turn {n}{END}{b.text} turn {n + 1}{END}" for n, a, b in ((0, *TURNS[:2]), (2, *TURNS[2:])))
    )
    trainer.train()
    assert losses(trainer)


def test_dpo_prepares_pairs_and_takes_a_step(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    write_run(tmp_path / "runs", accepted())
    write_run(tmp_path / "runs", rejected(), turns=TURNS[:2])
    rows = load(exported(tmp_path, "trl-preference", "parquet"), cache=tmp_path / "cache")
    args = DPOConfig(max_length=None, **settings(tmp_path))
    models = {"model": make_model(tokenizer), "ref_model": make_model(tokenizer)}
    trainer = DPOTrainer(**models, args=args, train_dataset=rows, processing_class=tokenizer)
    (row,) = trainer.train_dataset
    chosen, refused = tokenizer.decode(row["chosen_ids"]), tokenizer.decode(row["rejected_ids"])
    assert "fused" in chosen and "fused" not in refused
    assert "cat model.py" in chosen and "cat model.py" in refused
    assert "This is model.py" in tokenizer.decode(row["prompt_ids"])
    trainer.train()
    assert losses(trainer)


def test_kto_prepares_labels_and_takes_a_step(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    write_run(tmp_path / "runs", accepted(reward=3))
    write_run(tmp_path / "runs", accepted(reward=1))
    write_run(tmp_path / "runs", rejected())
    rows = load(exported(tmp_path, "trl-kto", "jsonl", desirable="reward >= 2"), cache=tmp_path / "cache")
    assert sorted(zip(rows["reward"], rows["label"], strict=True)) == [(-1, False), (1, False), (3, True)]
    args = KTOConfig(max_length=None, **settings(tmp_path))
    models = {"model": make_model(tokenizer), "ref_model": make_model(tokenizer)}
    trainer = KTOTrainer(**models, args=args, train_dataset=rows, processing_class=tokenizer)
    trainer.train()
    assert losses(trainer)


def test_grpo_samples_from_the_rows_and_hands_the_task_to_the_reward(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    tasks = {name: make_task(name) for name in ("relu", "gelu")}
    for task in tasks.values():
        write_run(tmp_path / "runs", task=task)
        write_run(tmp_path / "runs", rejected(), task=task)
    rows = load(exported(tmp_path, "trl-grpo", "jsonl"), cache=tmp_path / "cache")
    assert [row["runs"] for row in rows] == [2, 2]
    assert {row["mean_reward"] for row in rows} == {0.5}
    assert "This is model.py" in rows[0]["opening"][1]["content"]
    seen: list[Task] = []

    def reward(completions: list[Any], **columns: list[Any]) -> list[float]:
        names = [{key: columns[key][at] for key in ("task_name", "task_text")} for at in range(len(completions))]
        seen.extend(row_task(row) for row in names)
        return [float(at) for at in range(len(completions))]

    args = GRPOConfig(num_generations=2, max_completion_length=4, **settings(tmp_path))
    trainer = GRPOTrainer(
        make_model(tokenizer), reward_funcs=reward, args=args, train_dataset=rows, processing_class=tokenizer
    )
    trainer.train()
    assert len(seen) == 2
    assert all(task.sha256 == tasks[task.name].sha256 for task in seen)

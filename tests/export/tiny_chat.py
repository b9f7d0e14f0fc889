"""A tokenizer with TRL's own Qwen 2.5 template, a language model of some 50,000 parameters, and runs with ids."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import trl
from recorded_runs import SYSTEM, TURNS, Writing, accepted, make_task
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from agent.judging.reports import Verdict

END = "<|im_end|>"
SPECIAL = ["<|endoftext|>", "<|im_start|>", END]
TEMPLATES = Path(trl.__file__).parent / "chat_templates"


def make_tokenizer(template: str = "qwen2_5_training") -> PreTrainedTokenizerFast:
    """Byte-level BPE of a few hundred tokens."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator([SYSTEM, make_task().text], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=END, pad_token=SPECIAL[0])
    tokenizer.chat_template = (TEMPLATES / f"{template}.jinja").read_text()
    return tokenizer


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=16384,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen2ForCausalLM(config)


def write_run_with_ids(
    output: Path, tokenizer: PreTrainedTokenizerFast, *, verdict: Verdict | None = None, breaks: Sequence[int] = ()
) -> Path:
    """The usual turns with ids as a server gives them; before a turn in `breaks` the server templates all anew."""
    writing = Writing(output, make_task())
    seen: list[int] = tokenizer.encode(SYSTEM, add_special_tokens=False)
    for number, reply in enumerate(TURNS):
        if number in breaks:
            seen = seen[: len(seen) // 2]
        completion = tokenizer.encode(f"{reply.text} turn {number}{END}", add_special_tokens=False)
        ids: dict[str, Any] = {
            "prompt_token_ids": tuple(seen),
            "completion_token_ids": tuple(completion),
            "logprobs": tuple(-0.125 * (at + 1) for at in range(len(completion))),
        }
        writing.reply(reply.model_copy(update=ids))
        seen = seen + completion + tokenizer.encode(f"\nresult {number}\n", add_special_tokens=False)
    return writing.end(verdict or accepted())

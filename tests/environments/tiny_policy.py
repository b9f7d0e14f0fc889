"""A language model of some 100,000 parameters with random weights, and its tokenizer: each whole call is one token.

So a random model, held to a handful of tokens, really samples calls, words and ends, on a CPU in no time.
"""

import json
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from agent.loop.opening import skill_text

END = "<|im_end|>"
WORDS = "thinking"
SPECIAL = ["<|endoftext|>", "<|im_start|>", END]


def call_text(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


CALLS = (call_text("bash", command="echo hello"), call_text("bash", command="pwd"), call_text("python", code="1"))


def make_tokenizer(chat_template: str, *, calls: tuple[str, ...] = CALLS) -> PreTrainedTokenizerFast:
    """Byte-level BPE trained on the skill, so that an opening is a few thousand tokens."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator([skill_text()], trainer)
    inner.add_tokens([*calls, WORDS])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=END, pad_token=SPECIAL[0])
    tokenizer.chat_template = chat_template
    return tokenizer


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=32768,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen2ForCausalLM(config)


def suppressed(tokenizer: PreTrainedTokenizerFast, *, calls: tuple[str, ...] = CALLS) -> list[int]:
    """All tokens but the calls, the words and the end."""
    kept = {tokenizer.convert_tokens_to_ids(text) for text in (*calls, WORDS, END)}
    return [number for number in range(len(tokenizer)) if number not in kept]

"""Writes GGUF files that are whole, with as many weights as a test wants and no sense in them."""

import struct
from pathlib import Path

_STRING, _UINT32 = 8, 4


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def write_gguf(path: Path, *, architecture: str = "llama", context: int = 4096, weights: int = 64) -> Path:
    """One float32 tensor of `weights` numbers, all zero."""
    pairs = [
        text("general.architecture") + struct.pack("<I", _STRING) + text(architecture),
        text(f"{architecture}.context_length") + struct.pack("<II", _UINT32, context),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, _STRING, 2) + text("a") + text("b"),
    ]
    tensor = text("token_embd.weight") + struct.pack("<IQIQ", 1, weights, 0, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(pairs)) + b"".join(pairs) + tensor
    path.write_bytes(head + b"\0" * (-len(head) % 32) + b"\0" * (4 * weights))
    return path

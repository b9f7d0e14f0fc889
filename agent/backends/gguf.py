"""What a GGUF file says about itself: architecture, trained context, and whether all of it is there.

Covers versions 2 and 3, little endian, the tensor types of ggml up to 39; a tensor of a type not listed is not counted.
Does not read weights, so damage inside them goes unseen. Layout: ggml/docs/gguf.md.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from agent.errors import ConfigError

_MAGIC: Final = b"GGUF"
_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING: Final = 8
_ARRAY: Final = 9
_MOST_ITEMS: Final = 1 << 24
_MOST_BYTES: Final = 1 << 26
# ggml type -> (weights in a block, bytes of a block)
_BLOCKS: Final = {
    0: (1, 4),
    1: (1, 2),
    24: (1, 1),
    25: (1, 2),
    26: (1, 4),
    27: (1, 8),
    28: (1, 8),
    30: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    9: (32, 36),
    20: (32, 18),
    39: (32, 17),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    15: (256, 292),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    29: (256, 56),
    34: (256, 54),
    35: (256, 66),
}


@dataclass(frozen=True)
class GGUF:
    """`context_tokens` is what the model was trained for, 0 where the file does not say."""

    path: Path
    architecture: str
    name: str
    context_tokens: int


class _Cut(Exception):
    """The file ends, or makes no sense, inside its own header."""


def read_gguf(path: Path) -> GGUF:
    """Raises ConfigError for a file that is missing, no GGUF, or shorter than its own header says."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            if file.read(4) != _MAGIC:
                raise ConfigError(f"{path} is no GGUF file", hint="--model takes the path of a .gguf model")
            meta, end = _header(file)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (_Cut, struct.error, UnicodeDecodeError):
        raise _truncated(path) from None
    if end > size:
        raise _truncated(path, missing=end - size)
    architecture = str(meta.get("general.architecture", ""))
    window = meta.get(f"{architecture}.context_length", 0)
    return GGUF(path, architecture, str(meta.get("general.name", "")), window if isinstance(window, int) else 0)


def _truncated(path: Path, *, missing: int = 0) -> ConfigError:
    what = f"{missing} bytes are missing at its end" if missing else "it ends inside its header"
    return ConfigError(f"{path} is truncated: {what}", hint="download it again, or join all its parts")


def _header(file: BinaryIO) -> tuple[dict[str, Any], int]:
    """Metadata, and where the file must at least end."""
    (version,) = struct.unpack("<I", _take(file, 4))
    if version not in (2, 3):
        raise _Cut
    tensors, pairs = struct.unpack("<QQ", _take(file, 16))
    if max(tensors, pairs) > _MOST_ITEMS:
        raise _Cut
    meta: dict[str, Any] = {}
    for _ in range(pairs):
        key = _string(file)
        meta[key] = _value(file, _number(file))
    needed = max((_tensor_end(file) for _ in range(tensors)), default=0)
    align = meta.get("general.alignment", 32)
    align = align if isinstance(align, int) and align > 0 else 32
    return meta, -(-file.tell() // align) * align + needed


def _tensor_end(file: BinaryIO) -> int:
    """End of one tensor's weights, relative to the first."""
    _string(file)
    rank = _number(file)
    if rank > 8:
        raise _Cut
    weights = 1
    for (size,) in struct.iter_unpack("<Q", _take(file, 8 * rank)):
        weights *= size
    kind, offset = struct.unpack("<IQ", _take(file, 12))
    in_block, block_bytes = _BLOCKS.get(kind, (1, 0))
    return int(offset + weights // in_block * block_bytes)


def _value(file: BinaryIO, kind: int) -> Any:
    if kind in _SCALARS:
        code = f"<{_SCALARS[kind]}"
        return struct.unpack(code, _take(file, struct.calcsize(code)))[0]
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        raise _Cut
    inner, count = struct.unpack("<IQ", _take(file, 12))
    if count > _MOST_ITEMS:
        raise _Cut
    if inner in _SCALARS:
        _take(file, count * struct.calcsize(f"<{_SCALARS[inner]}"))
    else:
        for _ in range(count):
            _value(file, inner)
    return None


def _string(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", _take(file, 8))
    return _take(file, length).decode("utf-8", "replace")


def _number(file: BinaryIO) -> int:
    return int(struct.unpack("<I", _take(file, 4))[0])


def _take(file: BinaryIO, count: int) -> bytes:
    if count > _MOST_BYTES:
        raise _Cut
    data = file.read(count)
    if len(data) != count:
        raise _Cut
    return data

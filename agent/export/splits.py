"""Splits by the hash of the task: all rows of a task fall into one split, the same one in every export."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent.errors import ConfigError

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
DEFAULT: Final = "train"


@dataclass(frozen=True)
class Split:
    """`share` is between 0 and 1; all shares are 1 together."""

    name: str
    share: float


def parse_splits(text: str | None) -> tuple[Split, ...]:
    """`train:0.98,val:0.02`. Raises ConfigError."""
    if text is None:
        return (Split(DEFAULT, 1.0),)
    splits = tuple(_parse(part, text) for part in text.split(","))
    names = [split.name for split in splits]
    if len(set(names)) < len(names):
        raise ConfigError(f"--split {text!r} names a split twice")
    total = sum(split.share for split in splits)
    if abs(total - 1) > 1e-6:
        raise ConfigError(f"the shares of --split {text!r} make {total:g}, not 1")
    return splits


def split_of(task_sha256: str, splits: Sequence[Split]) -> str:
    """The name of the split that a task falls into."""
    place = int.from_bytes(hashlib.sha256(task_sha256.encode("utf-8")).digest()[:8]) / 2**64
    for split in splits:
        if place < split.share:
            return split.name
        place -= split.share
    return splits[-1].name


def _parse(part: str, text: str) -> Split:
    name, colon, share = (piece.strip() for piece in part.partition(":"))
    try:
        value = float(share)
    except ValueError:
        value = -1.0
    if not colon or not _NAME.fullmatch(name) or not 0 < value <= 1:
        raise ConfigError(f"--split {text!r} cannot be read", hint="for instance train:0.98,val:0.02")
    return Split(name, value)

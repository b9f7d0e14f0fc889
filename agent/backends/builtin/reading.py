"""Reads observations: what a command printed, why a check failed, how fast something was."""

import re
from typing import Final

_EXIT: Final = re.compile(r"\AExit code -?\d+\.\n")
_OMITTED: Final = re.compile(r"^\[\.\.\. \d+ characters omitted; ", re.MULTILINE)
_REASON: Final = re.compile(r"^- ([a-z_]+\.[a-z_]+: .*)$", re.MULTILINE)
_TIME: Final = re.compile(r"variant(\d+)\.so best ([0-9.]+) median ([0-9.]+)")
_COPY: Final = re.compile(r"^copy best ([0-9.]+) median", re.MULTILINE)
_SPEEDUP: Final = re.compile(r"^- against (.+?): ([0-9.]+)x .*: (\w+)$", re.MULTILINE)
REASON_CHARS: Final = 300


def output(observation: str) -> str:
    """What the command printed."""
    return _EXIT.sub("", observation, count=1)


def is_shortened(observation: str) -> bool:
    return _OMITTED.search(observation) is not None


def first_reason(observation: str) -> str:
    """The first reason code with its detail, else the first line."""
    found = _REASON.search(observation)
    text = found.group(1) if found else next(iter(observation.strip().splitlines()), "no result")
    return text[:REASON_CHARS]


def variant_times(observation: str) -> dict[int, float]:
    """Best time of each variant in microseconds; empty where the program did not run."""
    return {int(number): float(best) for number, best, _ in _TIME.findall(observation)}


def copy_time(observation: str) -> float | None:
    """Microseconds of a plain copy of as many bytes as the kernels read and write; None where it was not measured."""
    found = _COPY.search(observation)
    return float(found.group(1)) if found else None


def speedups(observation: str) -> dict[str, tuple[float, str]]:
    """Baseline -> ratio and the judge's word for it."""
    return {name: (float(ratio), call) for name, ratio, call in _SPEEDUP.findall(observation)}

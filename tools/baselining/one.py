"""One problem in a process of its own: loaded, run, compiled; then, when it is let, timed in eager mode and compiled.

Covers: CUDA events around one call (the clock on a CPU), a cold L2 cache, both sides in turn. Not covered: fresh inputs
for every call, which the judge gives; what autotuning chose while other problems shared the GPU.
"""

import math
import os
import statistics
import time
from collections.abc import Callable
from typing import Any, Final

import torch
from referee import faults, loading, tree
from referee.worker import set_precision

SEED: Final = 20260101
WARM_UP: Final = 2
ROUNDS: Final = (3, 60)  # at least, at most
SLOW_S: Final = 5.0  # from here on one round has to do
FLUSH_BYTES: Final = 128 << 20
DIGITS: Final = 4
SAME: Final = 1e-2  # of an output's root mean square: a remark, not a check
Say = Callable[[dict[str, Any]], None]
Call = Callable[[], Any]


def measured(text: str, *, target: str, precision: str, timing_s: float, say: Say, wait: Callable[[], None]) -> None:
    """Says `ready` when only timing is left, waits, and says the row. Never raises for what the problem does."""
    try:
        sides, row = prepared(text, target=target, precision=precision, say=say)
    except Exception as error:
        say(failure(error))
        return
    say({"ready": True})
    wait()
    try:
        row |= timed(sides, target=target, timing_s=timing_s)
        if target == "cuda":
            row["peak_bytes"] = torch.cuda.max_memory_allocated()
        say({"status": "measured", **row})
    except Exception as error:
        say(failure(error))


def prepared(text: str, *, target: str, precision: str, say: Say) -> tuple[dict[str, Call], dict[str, Any]]:
    torch.set_grad_enabled(False)
    set_precision(precision)
    say({"phase": "loading"})
    began = time.monotonic()
    task = loading.load_task(text, device=target)
    model, inputs = task.build(seed=SEED), task.inputs(seed=SEED)
    say({"phase": "the eager call"})
    want = list(tree.leaves_of(model(*inputs)))
    settle(target)
    sides: dict[str, Call] = {"eager": lambda: model(*inputs)}
    row: dict[str, Any] = {"device": where(target), "torch": torch.__version__}
    row["prepare_s"] = round(time.monotonic() - began, 2)
    say({"phase": "torch.compile"})
    began = time.monotonic()
    try:
        compiled = torch.compile(model)
        got = list(tree.leaves_of(compiled(*inputs)))
        settle(target)
        row["equal"] = len(got) == len(want) and all(map(alike, got, want))
        sides["compile"] = lambda: compiled(*inputs)
    except Exception as error:
        if is_device_trouble(error):
            raise
        row["compile_error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    row["compile_s"] = round(time.monotonic() - began, 2)
    return sides, row


def timed(sides: dict[str, Call], *, target: str, timing_s: float) -> dict[str, Any]:
    """Both sides in turn, order reversed every round; medians and quartiles in ms, the ratio of every round's pair."""
    for call in sides.values():
        for _ in range(WARM_UP):
            call()
    settle(target)
    one = Events() if target == "cuda" else on_the_clock
    samples: dict[str, list[float]] = {name: [] for name in sides}
    began, rounds = time.monotonic(), 0
    while go_on(rounds, time.monotonic() - began, timing_s):
        order = list(sides) if rounds % 2 == 0 else list(reversed(sides))
        for name in order:
            samples[name].append(one(sides[name]))
        rounds += 1
    row: dict[str, Any] = {"rounds": rounds}
    for name, times in samples.items():
        row |= {f"{name}_ms": short(statistics.median(times)), f"{name}_quartiles_ms": quartiles(times)}
    if "compile" in samples:
        ratios = [eager / other for eager, other in zip(samples["eager"], samples["compile"], strict=True)]
        row |= {"ratio": short(statistics.median(ratios)), "ratio_quartiles": quartiles(ratios)}
    return row


def go_on(rounds: int, spent_s: float, timing_s: float) -> bool:
    least, most = ROUNDS
    if rounds < least:
        return rounds == 0 or spent_s < SLOW_S
    return rounds < most and spent_s < timing_s


class Events:
    """Milliseconds of one call between two CUDA events, after the L2 cache was written full of something else."""

    def __init__(self) -> None:
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")

    def __call__(self, call: Call) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self._flush.zero_()
        begin.record()
        call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))


def on_the_clock(call: Call) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3


def quartiles(values: list[float]) -> list[float]:
    if len(values) < 2:
        return [short(values[0]), short(values[0])]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return [short(low), short(high)]


def alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.numel() or not one.is_floating_point():
        return bool(torch.equal(one, other))
    scale = float(other.float().square().mean().sqrt())
    return bool(torch.allclose(one.float(), other.float(), rtol=SAME, atol=SAME * scale, equal_nan=True))


def where(target: str) -> str:
    return str(torch.cuda.get_device_name()) if target == "cuda" else f"{len(os.sched_getaffinity(0))} cores"


def settle(target: str) -> None:
    if target == "cuda":
        torch.cuda.synchronize()


def short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else value


FORKED: Final = "re-initialize CUDA in forked"
LOST: Final = ("device-side assert", "illegal memory access", "unspecified launch failure")


def is_device_trouble(error: BaseException) -> bool:
    """After which nothing on the device works any more, or which says nothing about torch.compile."""
    text = str(error)
    return isinstance(error, torch.OutOfMemoryError) or faults.of_machine(text) or any(words in text for words in LOST)


def failure(error: BaseException) -> dict[str, Any]:
    """The reason's code says whose trouble it is: memory may be enough when nobody else is there."""
    detail = f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
    if isinstance(error, loading.LoadError):
        return {"status": "failed", "code": error.code, "detail": error.detail[:500]}
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "out of memory" in str(error):
        return {"status": "failed", "code": "task.out_of_memory", "detail": detail}
    if faults.of_machine(detail) or FORKED in detail:
        return {"status": "failed", "code": "runtime.no_device", "detail": detail}
    return {"status": "failed", "code": "task.raises", "detail": detail}

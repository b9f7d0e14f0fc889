"""Timing on a GPU: nobody else may use it, nothing may have begun early, and what the protocol takes is measured."""

import functools
import math
from typing import Final

import torch

from referee import challenge, seal
from referee.challenge import Batch, Spans, State
from referee.correctness import ORACLE_LIMIT_S, Trial
from referee.launch import Worker
from referee.outcome import Rejected, Unjudgeable
from referee.samples import Times
from referee.stores import DeviceMemory

SHARE: Final = 0.15  # of a GPU's free memory that one batch's inputs and outputs may take
COMPARED: Final = (32, 1 << 30)  # items and bytes of a batch that are compared
EMPTY_WINDOWS: Final = 3
FRESH: Final = 0x5A
LONG_TRIAL: Final = 34
SHORT_TRIAL: Final = 2
WINDOW_LIMIT_S: Final = 100.0


class Watch:
    """Around the writing of inputs: quiet before, and nothing changed afterwards that the referee did not write."""

    def __init__(self, trial: Trial, worker: Worker, *, turn: str) -> None:
        self._trial = trial
        self._store = worker.store
        self._turn = turn
        self._eve: seal.Eve | None = None

    def at_rest(self, written: Spans) -> None:
        require_quiet(self._trial, blaming=self._turn)
        if isinstance(self._store, DeviceMemory):
            self._eve = seal.before(self._store, written)

    def check(self) -> None:
        """Raise for work that was queued on the GPU and has begun with the inputs."""
        if self._eve is None or self._turn != "submission" or not isinstance(self._store, DeviceMemory):
            return
        if seal.disturbed(self._store, self._eve):
            raise Rejected(
                "timing.early",
                "memory changed before the batch had started: work was queued on the GPU to begin with the inputs",
            )


def require_quiet(trial: Trial, *, blaming: str) -> None:
    """All workers are stopped: whatever keeps the GPU busy now, the submission has left there, or another program.

    Which of them is found by ending the submission: its kernels end with it.
    """
    if trial.quiet is None or trial.quiet.is_quiet():
        return
    trial.submission.end()
    if trial.notes["quiet_before"] and trial.quiet.is_quiet():  # it was, and it is again without the submission
        raise Rejected(
            "tamper.device_work",
            f"kernels of the submission ran on on the GPU while it was stopped (found before {blaming}'s turn)",
        )
    raise Unjudgeable("runtime.device_busy", "other programs keep the GPU busy: nothing can be timed on it")


def _window_us(trial: Trial, worker: Worker, batch: Batch, state: State | None = None) -> float:
    placed = challenge.place(worker, batch, perturb=FRESH, weights=state, outputs=trial.spec)
    answer = challenge.run(worker, batch, placed, timeout_s=WINDOW_LIMIT_S)
    if not worker.hostile:
        challenge.overwrite_outputs(worker, answer)
    return answer.window.wall_ns / 1e3


def seconds_a_call(trial: Trial, worker: Worker, state: State) -> float:
    """From a long and a short batch: with few calls the protocol would count for most of a small kernel's time."""
    draw = functools.partial(challenge.draw, trial.oracle, timeout_s=ORACLE_LIMIT_S)
    one = draw(seeds=trial.seeds.many(f"size-{worker.name}", 0, 1))
    room = most_bytes() / 3 / max(1, one.bytes_per_item())
    long = draw(seeds=trial.seeds.many(f"size-{worker.name}", 1, max(SHORT_TRIAL + 1, min(LONG_TRIAL, int(room)))))
    short_us = min(_window_us(trial, worker, long.first(SHORT_TRIAL), state) for _ in range(2))
    long_us = min(_window_us(trial, worker, long, state) for _ in range(2))
    slope = (long_us - short_us) / (long.count - SHORT_TRIAL)
    return max(slope, long_us / long.count / 20) / 1e6


def most_bytes() -> float:
    return SHARE * float(torch.cuda.mem_get_info()[0])


def compared(times: Times) -> int:
    """How many items of a batch are compared: on a GPU launches count as well as bytes."""
    return min(COMPARED[0], COMPARED[1] // max(times.output_bytes, 1))


def copy_speed() -> float:
    """GB/s that a copy on the GPU writes."""
    source = torch.ones(1 << 26, device="cuda")
    copy = torch.empty_like(source)
    best = math.inf
    for _ in range(5):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        copy.copy_(source)
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) / 1e3)
    return float(source.numel() * 4 / best / 1e9)

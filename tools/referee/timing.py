"""Paired timing: batches of fresh inputs, eager, compiled and submission interleaved, all on the referee's clock.

Covers: time hidden by the worker's clocks, threads, forks or lateness (the window ends when the whole process is
stopped), replay (every call has its own content and weights change every round; outputs are compared with eager's on
the same inputs), a slowed baseline (its process never saw the submission, which is stopped meanwhile). Does not cover:
a machine whose clock speed others change; see `quiet`.
"""

import contextlib
import dataclasses
import math
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import torch

from referee import (
    challenge,
    compare,
    correctness,
    cuda_driver,
    diagnosis,
    footprint,
    noise,
    on_device,
    quota,
    stopping,
    stores,
    tree,
    truth,
)
from referee.challenge import Answer, Batch, State
from referee.correctness import ORACLE_LIMIT_S, Trial
from referee.launch import Look, Worker
from referee.outcome import Rejected, Unjudgeable
from referee.samples import FEWEST_ROUNDS, Sample, Times
from referee.seeds import Seeds

BATCH_S: Final = 0.030
LONGEST_BATCH_S: Final = 1.0
BATCH_BYTES: Final = 320 << 20
MOST_ITEMS: Final = 2000
MOST_POINTERS: Final = 12_000  # an answer has to fit into a socket's buffer: its writer is stopped
MORE: Final = 8
UNSEEN: Final = 1000  # rounds that are not recorded have seeds of their own
NEIGHBOURS: Final = 32  # calls before a wrong one whose outputs it is compared with
LOOKED_AT: Final = 2  # rounds after which one more is played in which the submission is looked at on its way
LOOK_ONE_IN: Final = 6
SLACK: Final = 1.5
BY_PARTS: Final = 2  # outputs of a round
COMPARERS: Final = 2  # threads
BETWEEN_PROCESSES: Final = 0.04
"""On a CPU: a module against itself in two processes, twelve judgements, differed by 0.4 to 5.0 %, each time alike in
all rounds (where their memory lies), so that the rounds' own interval called four of them faster or slower. Of 16 later
ones most differed by less than 3 %, one by 9 %, which this does not cover.
"""
FEW_LOOKS: Final = 4  # outputs of few integers in a round that are looked at with draws of noise
SAMPLE_S: Final = 0.2
WINDOW: Final = 1 << 20
COMPILE_LIMIT_S: Final = 600.0
FLOOR: Final = 8.0  # times the measured copying speed: no kernel writes its output faster than that
T = TypeVar("T")


def measure(trial: Trial, baselines: dict[str, Worker], *, budget_s: float, marks: Callable[[str], None]) -> Times:
    """Warm up, find the batch size, then rounds until they say nothing new or the budget is spent."""
    sides = {**baselines, "submission": trial.submission}
    times = Times(
        samples={name: [] for name in sides},
        copy_gb_per_s=copy_speed(trial.target),
        between=BETWEEN_PROCESSES if trial.target == "cpu" else 0.0,
    )
    state = challenge.draw_weights(
        trial.oracle, mode="redraw", seed=trial.seeds.of("weights", 10_000, 0), timeout_s=ORACLE_LIMIT_S
    )
    for name, worker in sides.items():
        if name != "submission" or trial.policy != "strict":
            challenge.load_weights(worker, state, timeout_s=correctness.FIRST_LIMIT_S)
    estimates = _warm_up(trial, sides, state)
    times.compiled = _graphs(baselines["compile"])
    marks("warm")
    times.calls = _batch_size(trial, estimates, state, times)
    deadline = time.monotonic() + budget_s
    number = 0
    meter = noise.Meter.now(trial.nursery)
    play_round(trial, sides, state, number, times, record=False)
    most = stopping.MOST_ROUNDS[trial.target]
    while number < FEWEST_ROUNDS or (number < most and time.monotonic() < deadline and not stopping.enough(times)):
        number += 1
        play_round(trial, sides, state, number, times, record=True)
        if number <= LOOKED_AT or not random.SystemRandom().randrange(LOOK_ONE_IN):
            # In between and not counted, like all others for the submission: what it does in the middle of a batch.
            look = footprint.Looks(trial, batch_s=times.samples["submission"][-1].us * times.calls / 1e6)
            play_round(trial, sides, state, number + UNSEEN, times, record=False, look=look)
    times.foreign_share = meter.foreign_share(noise.Meter.now(trial.nursery))
    times.empty_us = [challenge.empty_window(baselines["eager"]).wall_ns / 1e3 for _ in range(on_device.EMPTY_WINDOWS)]
    marks("timed")
    _check_floor(times)
    return times


class Primer:
    """The compiled baseline's first call, in which torch.compile compiles: beside everything that is not timed."""

    def __init__(self, oracle: Worker, worker: Worker, *, seeds: Seeds) -> None:
        self._worker = worker
        self._batch = challenge.draw(oracle, seeds=seeds.many("prime", 0, 1), timeout_s=ORACLE_LIMIT_S)
        self._trouble: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            if isinstance(self._worker.store, stores.DeviceMemory):
                cuda_driver.start()  # the context becomes this thread's
            placed = challenge.place(self._worker, self._batch, perturb=0)
            challenge.run(self._worker, self._batch, placed, timeout_s=COMPILE_LIMIT_S)
        except Exception as error:
            self._trouble = error

    def wait(self) -> None:
        """Raises what the first call raised."""
        self._thread.join()
        if self._trouble is not None:
            raise self._trouble

    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def give_up(self) -> None:
        """No verdict needs it any more."""
        if self._thread.is_alive():
            with contextlib.suppress(OSError):
                os.kill(self._worker.pid, signal.SIGKILL)
            self._thread.join()


def _graphs(worker: Worker) -> dict[str, int]:
    fields = worker.call("graphs", timeout_s=10.0).fields
    counts = {name: int(fields[name]) for name in ("graphs", "cache_hits", "cache_misses")}
    if counts["graphs"] < 1:
        raise Unjudgeable("task.not_compiled", "torch.compile made no graph of the reference: there is no baseline")
    return counts


def _warm_up(trial: Trial, sides: dict[str, Worker], state: State) -> dict[str, float]:
    """A first call (torch.compile compiles here), then three short batches; the fastest tells the batch size."""
    found = {}
    for name, worker in sides.items():
        best = math.inf
        for attempt in range(4):
            count = 1 if attempt < 2 else 3
            batch = challenge.draw(
                trial.oracle, seeds=trial.seeds.many(f"warm-{name}", attempt, count), timeout_s=ORACLE_LIMIT_S
            )
            placed = challenge.place(worker, batch, perturb=0, weights=state, outputs=trial.spec)
            limit = COMPILE_LIMIT_S if name == "compile" else correctness.FIRST_LIMIT_S + 200 * trial.item_s * count
            answer = challenge.run(worker, batch, placed, timeout_s=limit)
            if attempt:
                best = min(best, answer.window.wall_ns / count / 1e9)
        found[name] = on_device.seconds_a_call(trial, worker, state) if trial.target == "cuda" else best
    return found


def _batch_size(trial: Trial, estimates: dict[str, float], state: State, times: Times) -> int:
    started = time.monotonic()
    batch = challenge.draw(trial.oracle, seeds=trial.seeds.many("size", 0, 1), timeout_s=ORACLE_LIMIT_S)
    drawing_s = time.monotonic() - started
    if trial.target == "cuda":  # one call's constant part would count as every item's
        started = time.monotonic()
        challenge.draw(trial.oracle, seeds=trial.seeds.many("size", 1, 1 + MORE), timeout_s=ORACLE_LIMIT_S)
        drawing_s = max((time.monotonic() - started - drawing_s) / MORE, drawing_s / 100)
    known = truth.fetch(trial.oracle, items=[0], precision=trial.precision, extra=[], timeout_s=ORACLE_LIMIT_S)
    times.output_bytes = sum(layout["bytes"] for layout in tree.tensors_of(known.specs[0]))
    times.batch_bytes = batch.bytes_per_item() + times.output_bytes
    wanted = BATCH_S / min(estimates.values())
    limits = (
        LONGEST_BATCH_S / max(estimates.values()),
        (BATCH_BYTES if trial.target == "cpu" else on_device.most_bytes()) / max(times.batch_bytes, 1),
        1.5 / drawing_s,
        MOST_POINTERS / max(1, len(tree.tensors_of(known.specs[0]))),
        MOST_ITEMS,
    )
    return max(1, math.ceil(min(wanted, *limits)))


def play_round(
    trial: Trial,
    sides: dict[str, Worker],
    state: State,
    number: int,
    times: Times,
    *,
    record: bool,
    look: Look | None = None,
) -> None:
    """The same fresh inputs and weights on every side, in an order that turns round; outputs are compared."""
    seeds = trial.seeds.many("timed", number, times.calls)
    with times.spending("draw"):
        batch = challenge.draw(trial.oracle, seeds=seeds, timeout_s=ORACLE_LIMIT_S)
        nudge(state)
    on_gpu = trial.target == "cuda"
    order = list(sides)
    if number % 2:
        order.reverse()
    chosen = _secret_sample(batch, times, trial.target)
    outputs: dict[str, dict[int, list[torch.Tensor]]] = {}
    answers: dict[str, Answer] = {}
    changed: dict[int, list[bool]] = {}
    for name in order:
        worker = sides[name]
        in_place = state if name != "submission" or trial.policy == "strict" else None
        if in_place is None:
            challenge.load_weights(worker, state, timeout_s=correctness.FIRST_LIMIT_S)
        if on_gpu:  # where nothing may be left between the writing of inputs and the clock
            quota.pause()
        watch = on_device.Watch(trial, worker, turn=name)
        with times.spending("place"):
            placed = challenge.place(
                worker,
                batch,
                perturb=on_device.FRESH if on_gpu else 0,
                weights=in_place,
                outputs=trial.spec,
                at_rest=watch.at_rest,
            )
            watch.check()
        limit = 10.0 + 100 * LONGEST_BATCH_S
        if not on_gpu:
            quota.pause()
        with times.spending("run"):
            answers[name] = challenge.run(
                worker, batch, placed, timeout_s=limit, look=look if name == "submission" else None
            )
        if record:
            times.samples[name].append(_sample(answers[name], times.calls))
            if on_gpu and name != "submission":
                times.protocol_us.append(answers[name].window.protocol_ns() / 1e3)
        if name == "compile":
            challenge.overwrite_outputs(worker, answers[name])
            continue
        if name == "submission":
            challenge.sweep(trial.nursery, trusted=trial.trusted)
            compare.check_structure(answers[name].spec, expected=trial.spec)
        with times.spending("read"), challenge.still(worker):
            outputs[name] = {index: challenge.read_outputs(worker, answers[name], index) for index in chosen}
            if name == "submission":
                changed = {index: challenge.input_changed(worker, batch, answers[name], index) for index in chosen[:2]}
                challenge.check_seal(worker, answers[name])
            else:
                untouched = {
                    index: challenge.input_changed(worker, batch, answers[name], index) for index in chosen[:2]
                }
                challenge.overwrite_outputs(worker, answers[name])
    for index, found in changed.items():
        correctness.check_inputs(found, untouched[index])
    with times.spending("compare"):
        _compare(trial, batch, state, answers, outputs, chosen)
    times.compared += len(chosen)
    times.order.append("".join(name[0] for name in order))


def _sample(answer: Answer, calls: int) -> Sample:
    window = answer.window
    return Sample(
        us=window.wall_ns / calls / 1e3,
        reply_us=window.reply_ns / calls / 1e3,
        cpu_us=window.cpu_ns / calls / 1e3,
        waited_share=window.waited_ns / window.wall_ns,
    )


def _secret_sample(batch: Batch, times: Times, target: str) -> list[int]:
    """Items to compare, the last one first; all where that is quick."""
    affordable = int(SAMPLE_S * 1e9 / (1 + 4 * times.output_bytes))  # about 2 ns a byte to read and compare both sides
    if target == "cuda":
        affordable = on_device.compared(times)
    count = min(batch.count, max(4, affordable))
    last = batch.count - 1
    others = random.SystemRandom().sample(range(last), count - 1)
    return [last, *others]


def _compare(
    trial: Trial,
    batch: Batch,
    state: State,
    answers: dict[str, Answer],
    outputs: dict[str, dict[int, list[torch.Tensor]]],
    chosen: list[int],
) -> None:
    """Against eager's outputs on the same inputs; what differs there is looked at again with the float64 truth.

    Parts are compared of a few outputs only: that takes longer, and they may differ wherever eager's own are rough.
    """
    loose = [dataclasses.replace(tolerance, slack=SLACK) for tolerance in trial.tolerances[1.0]]
    by_parts = random.SystemRandom().sample(chosen, min(len(chosen), BY_PARTS))

    def difference(index: int) -> compare.Mismatch | None:
        mine, want = outputs["submission"][index], outputs["eager"][index]
        return compare.find_mismatch(mine, truth=want, reference=want, tolerances=loose, suspicious=index in by_parts)

    found = {index: one for index, one in zip(chosen, _each(difference, chosen, trial.target), strict=True) if one}
    few = [index for index, one in found.items() if loose[one.leaf].counts_few]  # rounding alone may be the reason
    looked_at = random.SystemRandom().sample(few, min(len(few), FEW_LOOKS))
    for index in [index for index in found if index in looked_at or index not in few]:
        _second_look(trial, batch, state, answers["submission"], outputs, index)
    for index in chosen[:2]:
        trial.history.remember(outputs["eager"][index])


def _each(function: Callable[[int], T], items: list[int], target: str) -> list[T]:
    """In order. All workers are stopped meanwhile: on a CPU the cores are free."""
    if target == "cuda":
        return [function(item) for item in items]
    with ThreadPoolExecutor(COMPARERS) as pool:
        return list(pool.map(function, items))


def _second_look(
    trial: Trial,
    batch: Batch,
    state: State,
    answer: Answer,
    outputs: dict[str, dict[int, list[torch.Tensor]]],
    index: int,
) -> None:
    adopt(trial.oracle, state)
    known = truth.fetch(trial.oracle, items=[index], precision=trial.precision, extra=[], timeout_s=ORACLE_LIMIT_S)
    tolerances = correctness.learned(trial, known, batch, scale=1.0, kept=False)
    mine = outputs["submission"][index]
    mismatch = correctness.mismatched(trial, known, mine, item=0, index=index, tolerances=tolerances)
    if mismatch is None:
        return
    if _of_another_call(trial.submission, answer, index, mine):
        raise Rejected("replay.stale_output", "in a timed batch: byte for byte the output of another call of the batch")
    earlier = [*trial.history.outputs, *(leaves for at, leaves in outputs["eager"].items() if at != index)]
    rejected = diagnosis.explain(
        mismatch,
        worker=trial.submission,
        answer=answer,
        index=index,
        outputs=mine,
        known=known,
        item=0,
        tolerances=tolerances,
        history=diagnosis.History(outputs=earlier),
        old_weights=None,
        perturb=0,
    )
    raise Rejected(rejected.code, f"in a timed batch: {rejected.detail}")


def _of_another_call(worker: Worker, answer: Answer, index: int, mine: list[torch.Tensor]) -> bool:
    """Whether the outputs are those of one of the calls before; the worker still stands where it was stopped."""
    if all(not leaf.numel() or bool((leaf == leaf.flatten()[0]).all()) for leaf in mine):
        return False
    for at in range(max(0, index - NEIGHBOURS), index):
        others = challenge.read_outputs(worker, answer, at)
        if all(torch.equal(one, other) for one, other in zip(mine, others, strict=True)):
            return True
    return False


def adopt(oracle: Worker, state: State) -> None:
    """Give the reference worker the weights that the referee has nudged."""
    challenge.load_weights(oracle, state, timeout_s=ORACLE_LIMIT_S)
    oracle.call("adopted", timeout_s=ORACLE_LIMIT_S)


def nudge(state: State) -> None:
    """New values for floating-point weights, between 0.9 and 1.1 of the old ones: what was computed from them before
    is stale now.

    Of large tensors a random stretch changes; a product or a packing of it is stale as well.
    """
    for index, (_, layout) in enumerate(state.entries):
        values = state.arena.tensor(index, layout=layout)
        if not layout["bytes"] or not values.is_floating_point():
            continue
        flat = values.view(-1)
        start = random.SystemRandom().randrange(max(1, flat.numel() - WINDOW))
        part = flat[start : start + WINDOW]
        part.mul_(torch.rand(part.shape, device=part.device).mul_(0.2).add_(0.9).to(part.dtype))


def copy_speed(target: str) -> float:
    """GB/s that a copy writes on this machine, all threads, or on its GPU."""
    if target == "cuda":
        return on_device.copy_speed()
    source, copy = torch.empty(1 << 24), torch.empty(1 << 24)
    source.fill_(1.0)
    copy.fill_(2.0)
    best = math.inf
    for _ in range(3):
        started = time.perf_counter()
        copy.copy_(source)
        best = min(best, time.perf_counter() - started)
    return float(source.numel() * 4 / best / 1e9)


def _check_floor(times: Times) -> None:
    floor_us = times.output_bytes / (FLOOR * times.copy_gb_per_s * 1e3)
    median = times.median_us("submission")
    if median < floor_us:
        raise Rejected(
            "timing.below_floor", f"{median:.3f} us a call is less than writing the output takes ({floor_us:.3f} us)"
        )

"""Correctness rounds: fresh inputs and weights, poisoned memory, every element of every output against the truth."""

import copy
import time
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from referee import challenge, compare, diagnosis, numerics, policy, tree, truth
from referee.challenge import Answer, Batch, State
from referee.controls import Controls
from referee.launch import Look, Nursery, Worker
from referee.numerics import Tolerance
from referee.outcome import Rejected, Unjudgeable
from referee.quiet import Probe
from referee.seeds import Seeds
from referee.truth import LOWER_BITS, Truth

ORACLE_LIMIT_S: Final = 300.0
FIRST_LIMIT_S: Final = 60.0
SCALED: Final = 2.5
FINE: Final = 1e-3  # RMS difference between two runs of the reference: more is no matter of summation order
COARSE: Final = 5e-2
MORE_LOOKS: Final = 3  # at few integers that look wrong: twelve draws miss one of about 800 exact ties
SLOW_S: Final = 0.4  # a reference that takes longer than this gets fewer items a round


@dataclass
class Trial:
    """One submission against one task: the workers and what has been learned so far."""

    oracle: Worker
    submission: Worker
    nursery: Nursery
    trusted: list[Worker]
    seeds: Seeds
    target: str
    policy: str
    precision: str
    controls: Controls
    tolerances: dict[float, list[Tolerance]] = field(default_factory=dict)
    history: diagnosis.History = field(default_factory=diagnosis.History)
    state: State | None = None
    spec: tree.Spec = field(default_factory=dict)
    yardstick: Worker | None = None
    quiet: Probe | None = None  # on a GPU
    item_s: float = 0.0
    checked: int = 0
    operators: set[str] = field(default_factory=set)
    kernels: list[tuple[str, int, float]] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)  # places of code present when somebody looked in the middle of a call
    files: set[str] = field(default_factory=set)  # mapped executable at such a moment
    looks: int = 0
    worst: dict[str, float] = field(default_factory=lambda: {"largest": 0.0, "rms": 0.0, "share_of_allowed": 0.0})
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Round:
    """What one round does."""

    name: str
    items: int
    weights: str | None = None  # initial, redraw, or None: as they are
    scale: float = 1.0
    log: bool = False
    controls: bool = False
    extra: tuple[str, ...] = ()


def check(trial: Trial) -> None:
    """All correctness rounds, then the decision whether this task can be judged at all."""
    admit(trial)
    items = 1 if trial.item_s > SLOW_S else 3
    lower = LOWER_BITS[trial.precision]
    bits = (f"bits{lower}",) if lower else ()
    play(trial, Round("initial", items=max(2, items), weights="initial", controls=True, extra=bits))
    play(
        trial,
        Round("redrawn", items=max(2, items - 1), weights="redraw", controls=True, extra=(*bits, "previous_weights")),
    )
    play(trial, Round("scaled", items=max(1, items - 1), weights="redraw", scale=SCALED, extra=("previous_weights",)))
    trial.controls.decide_again()


def admit(trial: Trial) -> None:
    """The reference must run, repeat itself, and depend on inputs that differ between seeds."""
    batch = challenge.draw(trial.oracle, seeds=trial.seeds.many("admission", 0, 2), timeout_s=ORACLE_LIMIT_S)
    if batch.count == 2 and batch.leaves(0) and _same_content(batch) and not trial.notes.get("weights"):
        raise Unjudgeable("task.constant_inputs", "get_inputs() returns the same tensors under every seed")
    started = time.monotonic()
    first = truth.fetch(
        trial.oracle, items=[0, 1], precision=trial.precision, extra=["again"], timeout_s=ORACLE_LIMIT_S
    )
    trial.item_s = (time.monotonic() - started) / 6
    trial.spec = first.specs[0]
    if detail := truth.unlike(first.specs):
        raise Unjudgeable("task.outputs", detail)
    if not first.reference[0]:
        raise Unjudgeable("task.no_tensors", "forward returns no tensor")
    again = first.variants["again"][0] or []
    for once, twice in zip(first.reference[0], again, strict=False):
        # Not by a learned tolerance: what is random makes every tolerance wide.
        if numerics.measure(twice, truth=once, reference=once).rms <= (
            COARSE if once.dtype in numerics.HALVES else FINE
        ):
            continue
        raise Unjudgeable("task.nondeterministic", "the reference gives another output for the same input")
    trial.oracle.check_flags()
    trial.notes["float64_oracle"] = first.wide


def _same_content(batch: Batch) -> bool:
    for (one, layout), (other, _) in zip(batch.leaves(0), batch.leaves(1), strict=True):
        if not torch.equal(batch.arena.tensor(one, layout=layout), batch.arena.tensor(other, layout=layout)):
            return False
    return True


def play(trial: Trial, plan: Round, *, look: Look | None = None) -> None:
    """One round: weights, inputs, run, read, compare."""
    number = trial.checked
    if plan.weights is not None:
        seed = trial.seeds.of("weights", number, 0)
        trial.state = challenge.draw_weights(trial.oracle, mode=plan.weights, seed=seed, timeout_s=ORACLE_LIMIT_S)
        if plan.weights == "initial" or trial.policy != "strict":
            challenge.load_weights(trial.submission, trial.state, timeout_s=FIRST_LIMIT_S)
    seeds = trial.seeds.many(plan.name, number, plan.items)
    batch = challenge.draw(trial.oracle, seeds=seeds, scale=plan.scale, timeout_s=ORACLE_LIMIT_S)
    perturb = challenge.POISONS[number % len(challenge.POISONS)]
    # Under strict nothing may be kept across calls, not even from load_state_dict: it is called once, with the first
    # weights, and later ones are written under the module's feet.
    in_place = trial.state if trial.policy == "strict" else None
    placed = challenge.place(trial.submission, batch, perturb=perturb, weights=in_place, outputs=trial.spec or None)
    limit = FIRST_LIMIT_S + 200 * trial.item_s * plan.items
    answer = challenge.run(trial.submission, batch, placed, timeout_s=limit, log=plan.log, look=look)
    challenge.sweep(trial.nursery, trusted=trial.trusted)
    compare.check_tensors(answer.spec, expected=trial.spec)
    with challenge.still(trial.submission):
        items = range(batch.count - 1, -1, -1)
        outputs = {index: challenge.read_outputs(trial.submission, answer, index) for index in items}
        changed = {index: challenge.input_changed(trial.submission, batch, answer, index) for index in items}
        challenge.check_seal(trial.submission, answer)
    known = truth.fetch(
        trial.oracle,
        items=list(range(batch.count)),
        precision=trial.precision,
        extra=list(plan.extra),
        timeout_s=ORACLE_LIMIT_S,
    )
    if tree.scalars_of(known.specs[0]) != tree.scalars_of(trial.spec):
        raise Unjudgeable(
            "task.outputs",
            "forward returns a Python number that depends on weights or the inputs' scale: return a tensor",
        )
    compare.check_scalars(answer.spec, expected=trial.spec)
    tolerances = learned(trial, known, batch, scale=plan.scale)
    if plan.controls:
        trial.controls.collect(
            known, tolerances, weighted=plan.weights == "redraw" and bool(trial.notes.get("weights"))
        )
        # Before anybody is blamed: what a task cannot tell apart is no fault of a submission.
        trial.controls.decide()
    _judge(trial, answer, batch, outputs, changed, known, tolerances, perturb)
    if plan.log:
        policy.check_flags(answer.names)
        trial.operators.update(answer.names)
        trial.kernels = answer.kernels
        if trial.policy == "strict":
            policy.check_operators(answer.names)
        if trial.target == "cuda" and (answer.kernels or _profiler_sees(trial)):
            trial.notes["kernel_us"] = policy.check_kernels(answer.kernels, strict=trial.policy == "strict")


def _profiler_sees(trial: Trial) -> bool:
    """Whether the profiler of a trusted worker records kernels on this machine; the yardstick launches a few."""
    if trial.yardstick is None:
        return False
    batch = challenge.draw(trial.oracle, seeds=trial.seeds.many("profiler", 0, 1), timeout_s=ORACLE_LIMIT_S)
    placed = challenge.place(trial.yardstick, batch, perturb=0, weights=trial.state)
    return bool(challenge.run(trial.yardstick, batch, placed, timeout_s=FIRST_LIMIT_S, log=True).kernels)


def watched(trial: Trial) -> None:
    """One call with the operators logged; raises for those that compute."""
    play(trial, Round("watched", items=1, log=True))


def learned(trial: Trial, known: Truth, batch: Batch, *, scale: float, kept: bool = True) -> list[Tolerance]:
    """The tolerances for inputs of this scale, after what the reference did on this batch. `kept`: for later batches as
    well, which a batch that a submission may have waited for should not decide.
    """
    tolerances = trial.tolerances.setdefault(scale, known.tolerances())
    if not kept:
        tolerances = copy.deepcopy(tolerances)
    known.teach(tolerances, inputs=batch.bytes_per_item() // 4)
    return tolerances


def mismatched(
    trial: Trial,
    known: Truth,
    outputs: list[torch.Tensor],
    *,
    item: int,
    index: int,
    tolerances: list[Tolerance],
) -> compare.Mismatch | None:
    """Whether and where the outputs of call `index` are wrong; `item` is its place in what is known. With few integers
    the draws may have missed a tie: then others are made as well.
    """
    mismatch, more = known.mismatch(outputs, item, tolerances), []
    for _ in range(MORE_LOOKS):
        if mismatch is None or not tolerances[mismatch.leaf].counts_few:
            break
        more += truth.more_draws(trial.oracle, index, timeout_s=ORACLE_LIMIT_S)
        mismatch = known.mismatch(outputs, item, tolerances, more)
    return mismatch


def _judge(
    trial: Trial,
    answer: Answer,
    batch: Batch,
    outputs: dict[int, list[torch.Tensor]],
    changed: dict[int, list[bool]],
    known: Truth,
    tolerances: list[Tolerance],
    perturb: int,
) -> None:
    for index in sorted(outputs):
        check_inputs(changed[index], known.notes[index]["modified"])
        mismatch = mismatched(trial, known, outputs[index], item=index, index=index, tolerances=tolerances)
        if mismatch is not None:
            raise diagnosis.explain(
                mismatch,
                worker=trial.submission,
                answer=answer,
                index=index,
                outputs=outputs[index],
                known=known,
                item=index,
                tolerances=tolerances,
                history=trial.history,
                old_weights=known.variants.get("previous_weights", [None])[0] if index == 0 else None,
                perturb=perturb,
            )
        trial.history.remember(known.reference[index])
        trial.checked += 1
    if challenge.overlaps_inputs(batch, answer) and not any(note["aliases"] for note in known.notes):
        raise Rejected("tamper.output_aliases_input", "an output lies in an input's memory; allocate the output")


def check_inputs(changed: list[bool], modified: list[bool]) -> None:
    for at, (now, allowed) in enumerate(zip(changed, modified, strict=True)):
        if now and not allowed:
            raise Rejected("tamper.input_modified", f"forward changed input {at}; the reference leaves it as it is")

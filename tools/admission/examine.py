"""One candidate in its own process: all filters in order of their cost; the first that fails ends the examination.

What passes: runs, finite, 1 to 100 ms in eager mode, the same output for the same input, an output that depends on the
inputs and on the weights and is not lost in a tolerance (the judge's own controls decide that), and torch.compile gives
an equal one. Flags are remarks on what passes: work whose result is lost, weights without effect.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import torch
from referee import loading, numerics, tree, truth
from referee.controls import Controls
from referee.numerics import Tolerance
from referee.oracle import Oracle
from referee.outcome import Unjudgeable

from admission import clock, compiled, dependence, watch
from admission.lanes import Options

T = TypeVar("T")
PRECISION: Final = "strict"
DETAIL: Final = 500
# RMS difference between two runs of the same: more is no matter of summation order (as in referee/correctness.py).
FINE: Final = 1e-3
COARSE: Final = 5e-2
TINY: Final = 0.01  # harnesses compare with an absolute tolerance of 1e-2: zeros pass where all outputs are smaller
NETWORK: Final = ("urlopen error", "Max retries exceeded", "huggingface.co", "Name or service not known", "getaddrinfo",
                  "We couldn't connect", "Temporary failure in name resolution")  # fmt: skip
GPU: Final = ("not compiled with CUDA", "No CUDA GPUs", "NVIDIA driver", "CUDA driver", "Invalid device")
MEMORY: Final = ("allocate memory", "not enough memory", "out of memory")


class Refused(Exception):
    """The candidate cannot be a task; `code` is a task.* reason."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


@dataclass
class Case:
    """One candidate and what is known about it so far."""

    options: Options
    channel: Any
    stage: str = "starting"
    facts: dict[str, Any] = field(default_factory=dict)
    flags: list[dict[str, str]] = field(default_factory=list)
    stage_s: dict[str, float] = field(default_factory=dict)
    stage_cpu_s: dict[str, float] = field(default_factory=dict)
    pid: int = field(default_factory=os.getpid)

    def step(self, name: str, action: Callable[[], T]) -> T:
        """Runs one stage; whatever the candidate's code raises becomes Refused."""
        self.stage = name
        self.tell({"phase": name})
        started, busy = time.monotonic(), cpu_seconds()
        try:
            return action()
        except (Refused, Unjudgeable):
            raise
        except loading.LoadError as error:
            raise _refused(error.code, error.detail) from error
        except BaseException as error:
            raise _refused_by(name, error) from error
        finally:
            if os.getpid() != self.pid:  # the candidate forked itself, and this is the other one
                os._exit(0)
            self.stage_s[name] = round(self.stage_s.get(name, 0.0) + time.monotonic() - started, 3)
            self.stage_cpu_s[name] = round(self.stage_cpu_s.get(name, 0.0) + cpu_seconds() - busy, 3)

    def flag(self, code: str, detail: str) -> None:
        self.flags.append({"code": code, "detail": detail[:DETAIL]})

    def tell(self, message: dict[str, Any]) -> None:
        self.channel.write(json.dumps(message) + "\n")
        self.channel.flush()


def cpu_seconds() -> float:
    """Of this process and of those that it waited for: the compiler's, for one."""
    return sum(os.times()[:4])


def main(text: str, options: Options, writer: int) -> None:
    """Examines one candidate and writes its report to the descriptor; the last thing that this process does."""
    channel = os.fdopen(writer, "w", encoding="utf-8")
    case = Case(options, channel)
    reasons: list[dict[str, str]] = []
    try:
        _course(case, text)
    except (Refused, Unjudgeable) as error:
        reasons = [{"code": error.code, "detail": error.detail[:DETAIL]}]
    case.facts["stage_seconds"] = case.stage_s
    case.facts["stage_cpu_seconds"] = case.stage_cpu_s
    case.facts["cpu_seconds"] = round(cpu_seconds(), 3)
    status = "refused" if reasons else "admitted"
    stage = case.stage if reasons else "admitted"
    case.tell({"status": status, "stage": stage, "reasons": reasons, "flags": case.flags, "facts": case.facts})
    os._exit(0)


def _course(case: Case, text: str) -> None:
    torch.set_num_threads(1 if case.options.lanes > 1 else case.options.threads)
    seed = torch_seed(text)
    device = case.step("load", lambda: _device(case.options))
    oracle = case.step("load", lambda: Oracle(text, seed=seed, device=device, pack=lambda _: ({}, ())))
    case.step("inputs", lambda: _draw(case, oracle, (seed + 1, seed + 2)))
    case.step("load", _alone)
    first = case.step("eager", lambda: _first_run(case, oracle))
    case.step("time", lambda: _timed(case, oracle))
    case.step("work", lambda: watch.work(case, oracle, first))
    known, tolerances = case.step("repeatable", lambda: _known(case, oracle, ["again"]))
    _check_repeats(known)
    case.step("inputs matter", lambda: dependence.on_inputs(case, oracle, seed=seed, want=known.reference[0]))
    _check_size(known)
    controls = Controls(precision=PRECISION)
    case.step("controls", lambda: _controls(controls, known, tolerances, weighted=False))
    weighted = case.step("weights matter", lambda: _redraw(case, oracle, seed + 3))
    case.step("inputs", lambda: _draw(case, oracle, (seed + 4, seed + 5)))
    extra = ["previous_weights"] if weighted else []
    later, tolerances = case.step("controls", lambda: _known(case, oracle, extra, tolerances))
    case.step("controls", lambda: _controls(controls, later, tolerances, weighted=weighted))
    case.step("controls", controls.decide_again)
    case.step("weights matter", lambda: dependence.on_weights(case, oracle, want=later.reference[0]))
    case.step("lost work", lambda: watch.lost_work(case, oracle))
    if case.options.compile and not (case.flags and case.options.flagged_uncompiled):
        case.step("compile", lambda: compiled.check(case, oracle, later, tolerances))
    case.step("after", _alone)


def torch_seed(text: str) -> int:
    """The same candidate is examined under the same seeds every time; they need no secret, nobody competes here."""
    import hashlib

    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:6])


def _device(options: Options) -> str:
    if options.target == "cuda" and not torch.cuda.is_available():
        raise Refused("task.no_cuda_device", "target cuda, and torch sees no GPU here")
    return options.target


def _draw(case: Case, oracle: Oracle, seeds: tuple[int, ...]) -> None:
    """Inputs of one item per seed, checked; they become the oracle's."""
    oracle.items = []
    for seed in seeds:
        values = oracle.task.inputs(seed=seed)
        try:
            spec, leaves = tree.flatten(values)
        except tree.Unsupported as error:
            raise Refused("task.bad_inputs", f"get_inputs() returns {error}") from error
        if not leaves:
            raise Refused("task.no_tensors", "get_inputs() returns no tensor")
        oracle.items.append((spec, [leaf.detach() for leaf in leaves]))
    one, other = (leaves for _, leaves in oracle.items[:2])
    if all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(one, other, strict=True)):
        raise Refused("task.constant_inputs", "get_inputs() returns the same tensors under every seed")
    case.facts["inputs"] = [_described(leaf) for leaf in one]
    state = oracle.model.state_dict()
    case.facts["parameters"] = sum(value.numel() for value in state.values())
    case.facts["compulsory_bytes"] = sum(_bytes(leaf) for leaf in [*one, *state.values()])


def _first_run(case: Case, oracle: Oracle) -> list[torch.Tensor]:
    """Outputs for the first inputs: tensors, finite, of a shape that the values of inputs do not change."""
    _, outputs, note = oracle._variant("float32", 0)
    if not outputs:
        raise Refused("task.no_tensors", "forward returns no tensor")
    case.facts["outputs"] = [_described(leaf) for leaf in outputs]
    case.facts["compulsory_bytes"] += sum(_bytes(leaf) for leaf in outputs)
    for at, leaf in enumerate(outputs):
        if leaf.numel() and (leaf.is_floating_point() or leaf.is_complex()):
            share = float((~torch.isfinite(leaf)).double().mean())
            if share > 0.5:
                raise Refused("task.not_finite", f"{share:.1%} of output {at} is NaN or infinite")
            if share:
                case.flag("task.not_finite", f"{share:.2%} of output {at} is NaN or infinite")
    if any(note["modified"]):
        case.flag("task.changes_inputs", "forward changes its inputs")
    if note["aliases"]:
        case.flag("task.output_is_input", "an output lies in an input's memory")
    return outputs


def _timed(case: Case, oracle: Oracle) -> None:
    spec, leaves = oracle.items[0]
    values = tree.unflatten(spec, iter(leaves))
    options = case.options
    found = clock.eager(lambda: oracle.model(*values), options)
    case.facts["eager_ms"] = round(found.median_ms, 4)
    case.facts["eager_min_ms"] = round(found.least_ms, 4)
    if found.least_ms > options.high_ms:
        raise Refused("task.too_slow", f"eager takes {found.least_ms:.4g} ms, more than {options.high_ms:g} ms")
    # By the least on both sides: the median of a busy machine let tasks of 0.3 ms pass for 5 ms.
    if found.least_ms < options.low_ms:
        raise Refused("task.too_fast", f"eager takes {found.least_ms:.4g} ms, less than {options.low_ms:g} ms")


def _known(
    case: Case, oracle: Oracle, extra: list[str], tolerances: list[Tolerance] | None = None
) -> tuple[truth.Truth, list[Tolerance]]:
    """What the judge learns in one round: the reference, the truth, and variants that must and must not pass."""
    items = range(len(oracle.items))
    plain = [oracle._variant("float32", index) for index in items]
    wide = [oracle._variant("float64", index)[1] for index in items]
    reference = [found[1] for found in plain]
    lower = f"bits{truth.LOWER_BITS[PRECISION]}"
    asked = items if truth.varied(reference[0]) else items[:1]
    variants: dict[str, list[list[torch.Tensor] | None]] = {}
    for name in (*truth.noises(reference[0]), lower, *extra):
        variants[name] = [oracle._variant(name, index)[1] or None for index in asked]
        variants[name] += [None] * (len(items) - len(asked))
    specs = [found[0] for found in plain if found[0] is not None]
    if detail := truth.unlike(specs):
        raise Refused("task.outputs", detail)
    best = [_best(ref, found) for ref, found in zip(reference, wide, strict=True)]
    known = truth.Truth(
        specs=specs,
        reference=reference,
        truth=best,
        variants=variants,
        notes=[found[2] for found in plain],
        wide=all(wide),
    )
    learned = tolerances or known.tolerances()
    known.teach(learned, inputs=sum(_bytes(leaf) for leaf in oracle.items[0][1]) // 4)
    case.facts["float64_oracle"] = known.wide
    return known, learned


def _best(reference: list[torch.Tensor], wide: list[torch.Tensor]) -> list[torch.Tensor]:
    same = [leaf.shape for leaf in wide] == [leaf.shape for leaf in reference]
    return wide if same else reference


def _check_repeats(known: truth.Truth) -> None:
    again = known.variants["again"][0] or []
    for once, twice in zip(known.reference[0], again, strict=False):
        limit = COARSE if once.dtype in numerics.HALVES else FINE
        if once.shape != twice.shape or numerics.measure(twice, truth=once, reference=once).rms > limit:
            raise Refused("task.nondeterministic", "another output for the same input (dropout, sampling, kept state?)")


def _check_size(known: truth.Truth) -> None:
    """Outputs that a tolerance of 1e-2 cannot tell from zeros, as published harnesses compare."""
    floats = [leaf for leaf in known.reference[0] if leaf.is_floating_point() and leaf.numel()]
    if not floats or len(floats) != len(known.reference[0]):
        return
    largest = max(float(leaf[torch.isfinite(leaf)].abs().max()) if leaf.numel() else 0.0 for leaf in floats)
    if largest < TINY:
        raise Refused(
            "task.tiny_output",
            f"no output is larger than {largest:.2g}: zeros pass at the tolerance 1e-2 of published harnesses; "
            "other sizes or scaled inputs would help",
        )


def _controls(controls: Controls, known: truth.Truth, tolerances: list[Tolerance], *, weighted: bool) -> None:
    controls.collect(known, tolerances, weighted=weighted)
    controls.decide()


def _redraw(case: Case, oracle: Oracle, seed: int) -> bool:
    """New weights; false where there are none."""
    import copy

    state = oracle.model.state_dict()
    if not any(value.is_floating_point() and value.numel() for value in state.values()):
        return False
    oracle.previous = copy.deepcopy(oracle.model)
    oracle._redraw(seed)
    oracle.wide = None
    return True


def _alone() -> None:
    """A task starts no processes."""
    with open(f"/proc/self/task/{os.getpid()}/children") as children:  # noqa: PTH123
        if children.read().split():
            raise Refused("task.starts_processes", "processes are left running")


def _described(leaf: torch.Tensor) -> dict[str, Any]:
    return {"shape": list(leaf.shape), "dtype": str(leaf.dtype).removeprefix("torch.")}


def _bytes(leaf: torch.Tensor) -> int:
    return int(leaf.numel() * leaf.element_size())


def _refused(code: str, detail: str) -> Refused:
    """The referee's codes, with what the text of an error says more exactly."""
    text = " ".join(detail.split())
    if code == "task.raises":
        for words, better in ((NETWORK, "task.needs_network"), (GPU, "task.needs_gpu"), (MEMORY, "task.out_of_memory")):
            if any(word in text for word in words):
                return Refused(better, text)
    return Refused(code, text)


def _refused_by(stage: str, error: BaseException) -> Refused:
    text = f"{stage}: {type(error).__name__}: {error}"
    if isinstance(error, MemoryError):
        return Refused("task.out_of_memory", text)
    if isinstance(error, SystemExit):
        return Refused("task.exits", text)
    return _refused("task.raises", text)

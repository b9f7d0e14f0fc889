"""Does the output depend on every input and on every weight? One at a time is replaced, and the output must change."""

import functools
from typing import Any, Final

import torch
from referee import numerics, tree
from referee.oracle import Oracle

CHANGE: Final = 1e-5  # relative RMS: rounding alone stays below it in float32
MANY: Final = 24  # weights beyond this number are taken together


def on_inputs(case: Any, oracle: Oracle, *, seed: int, want: list[torch.Tensor]) -> None:
    """Refuses where an input that differs between seeds has no effect."""
    from admission.examine import Refused

    (spec, leaves), (_, others) = oracle.items[0], oracle.items[1]
    for at, (leaf, other) in enumerate(zip(leaves, others, strict=True)):
        if leaf.shape != other.shape or leaf.dtype != other.dtype or torch.equal(leaf, other):
            continue
        mixed = [other if index == at else value for index, value in enumerate(leaves)]
        got = _leaves(oracle.model(*tree.unflatten(spec, iter([value.clone() for value in mixed]))))
        if not changed(got, want):
            raise Refused("task.ignores_inputs", f"another input {at} gives the same output")


def on_weights(case: Any, oracle: Oracle, *, want: list[torch.Tensor]) -> None:
    """Refuses where all weights together have no effect, flags single ones that have none."""
    from admission.examine import Refused

    if oracle.previous is None:
        return
    spec, leaves = oracle.items[0]
    run = functools.partial(_run, oracle.model, spec, leaves)
    names = [name for name, value in oracle.model.named_parameters() if value.numel()]
    before = oracle.previous.state_dict()
    without = [name for name in names[:MANY] if len(names) <= MANY and not _matters(oracle, name, before, run, want)]
    if names and len(without) == len(names):
        raise Refused("task.ignores_weights", "no weight has an effect on the output")
    for name in without:
        case.flag("task.weight_without_effect", f"another {name} gives the same output")


def _matters(oracle: Oracle, name: str, before: dict[str, torch.Tensor], run: Any, want: list[torch.Tensor]) -> bool:
    value = dict(oracle.model.named_parameters())[name].data
    kept = value.clone()
    if torch.equal(kept, before[name]):
        return True
    try:
        value.copy_(before[name])
        return changed(run(), want)
    finally:
        value.copy_(kept)


def changed(got: list[torch.Tensor], want: list[torch.Tensor]) -> bool:
    """More than rounding lies between these outputs."""
    for one, other in zip(got, want, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            return True
        if not (one.is_floating_point() or one.is_complex()):
            if not torch.equal(one, other):
                return True
        elif numerics.measure(one, truth=other, reference=other).rms > CHANGE:
            return True
    return False


def _run(model: Any, spec: Any, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    return _leaves(model(*tree.unflatten(spec, iter([leaf.clone() for leaf in leaves]))))


def _leaves(outputs: Any) -> list[torch.Tensor]:
    return [leaf.detach() for leaf in tree.leaves_of(outputs)]

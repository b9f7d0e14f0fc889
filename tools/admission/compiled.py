"""torch.compile of a candidate: it must make a graph, and the judge's own tolerance must accept its output."""

from typing import Any

import torch
from referee import loading, tree, truth
from referee.numerics import Tolerance
from referee.oracle import Oracle

from admission import clock


def check(case: Any, oracle: Oracle, known: truth.Truth, tolerances: list[Tolerance]) -> None:
    """Compiles for real, compares on the inputs that `known` is about, and times it."""
    from admission.examine import Refused

    spec, leaves = oracle.items[0]
    values = tree.unflatten(spec, iter([leaf.clone() for leaf in leaves]))
    # The number of threads is part of what is compiled: with another one for the timing it would be compiled again.
    torch.set_num_threads(case.options.threads)
    call = loading.compiled(oracle.model, mode="default")
    try:
        outputs = [leaf.detach().contiguous() for leaf in tree.leaves_of(call(*values))]
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise Refused("task.compile_fails", f"torch.compile: {text[:300]}") from error
    counts = loading.compile_counts()
    if not counts["graphs"]:
        raise Refused("task.not_compiled", "torch.compile made no graph")
    case.facts["graphs"] = counts["graphs"]
    if [(leaf.shape, leaf.dtype) for leaf in outputs] != [(leaf.shape, leaf.dtype) for leaf in known.reference[0]]:
        raise Refused("task.compile_differs", "shapes or dtypes under torch.compile differ from eager's")
    wrong = known.mismatch(outputs, 0, tolerances)
    if wrong is not None:
        raise Refused("task.compile_differs", f"under torch.compile {wrong.told()}")
    found = clock.again(lambda: call(*values), case.options)
    case.facts["compile_ms"] = round(found.median_ms, 4)
    case.facts["compile_min_ms"] = round(found.least_ms, 4)
    torch._dynamo.reset()

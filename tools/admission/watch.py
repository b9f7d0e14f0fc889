"""What a forward does, operator by operator: bytes and FLOPs, and operators whose result is lost.

An operator's result is lost where another result in its place leaves the output as it is, or where it returns its
input unchanged. Covers aten operators that return new tensors, up to a number of them. Does not cover: work that an
algebraic identity makes unnecessary though every intermediate value matters.
"""

from typing import Any, Final

import torch
from referee import tree
from referee.oracle import Oracle
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from admission import dependence

MADE: Final = (
    "empty",
    "zeros",
    "ones",
    "full",
    "new_",
    "arange",
    "scalar_tensor",
)  # what has no content of its own yet
MOST: Final = 16  # operators whose results are replaced, one run each
VIEWS: Final = (
    "view", "reshape", "expand", "permute", "transpose", "t", "slice", "select", "unsqueeze", "squeeze", "detach",
    "alias", "as_strided", "unbind", "split", "chunk", "_unsafe_view", "clone", "contiguous",
)  # fmt: skip


class Log(TorchDispatchMode):  # type: ignore[misc] # torch is not typed here
    """Counts operators; replaces the result of number `poke` by another of the same shape."""

    def __init__(self, *, poke: int | None = None, compare: bool = False) -> None:
        super().__init__()
        self.poke = poke
        self.compare = compare
        self.names: list[str] = []
        self.traffic = 0
        self.unchanged: list[int] = []
        self.fit: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        number = len(self.names)
        self.names.append(func.overloadpacket.__name__)
        given, made = list(tree.leaves_of(args)), list(tree.leaves_of(outputs))
        fresh = not (_storages(given) & _storages(made))
        if fresh:
            self.traffic += sum(leaf.numel() * leaf.element_size() for leaf in (*given, *made))
        name = self.names[-1]
        single = isinstance(outputs, torch.Tensor) and outputs.is_floating_point()
        if fresh and single and name not in VIEWS and not name.startswith(MADE):
            self.fit.append(number)
            first = given[0] if given else None
            if self.compare and first is not None and first.shape == outputs.shape and torch.equal(first, outputs):
                self.unchanged.append(number)
        return _other(outputs) if number == self.poke else outputs


def work(case: Any, oracle: Oracle, first: list[torch.Tensor]) -> None:
    """Operators, FLOPs (matrix products, convolutions, attention) and bytes that eager moves, as facts."""
    counter = FlopCounterMode(display=False)
    with Log(compare=True) as log, counter:
        _run(oracle)
    case.facts["operators"] = log.names[:64]
    case.facts["flops"] = int(counter.get_total_flops())
    case.facts["traffic_bytes"] = log.traffic
    for number in log.unchanged:
        case.flag("task.lost_work", f"operator {number + 1} ({log.names[number]}) returns its input unchanged")


def lost_work(case: Any, oracle: Oracle) -> None:
    """Flags operators whose result does not reach the output."""
    with Log() as log:
        want = _run(oracle)
    step = max(1, -(-len(log.fit) // MOST))
    for number in log.fit[::step]:
        with Log(poke=number):
            got = _run(oracle)
        if not dependence.changed(got, want):
            name = log.names[number]
            case.flag("task.lost_work", f"the result of operator {number + 1} ({name}) does not matter")


def _run(oracle: Oracle) -> list[torch.Tensor]:
    spec, leaves = oracle.items[0]
    return [leaf.detach() for leaf in tree.leaves_of(oracle.model(*tree.unflatten(spec, iter(leaves))))]


def _storages(leaves: list[torch.Tensor]) -> set[int]:
    return {leaf.untyped_storage().data_ptr() for leaf in leaves if leaf.numel()}


def _other(output: torch.Tensor) -> torch.Tensor:
    """Another tensor of about the same size and sign, and not the same by a factor."""
    generator = torch.Generator(output.device).manual_seed(0)
    factor = torch.rand(output.shape, generator=generator, dtype=output.dtype, device=output.device)
    return output * (factor + 0.5) + 0.01 * output.abs().mean()

"""Which function lowers which operator of torch; modules of this folder fill the table when they are imported."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from agent.backends.builtin.ir import Value

Lowering = Callable[..., Any]
F = TypeVar("F", bound=Lowering)
LOWERINGS: Final[dict[str, Lowering]] = {}


@dataclass(frozen=True)
class Dtype:
    """An element type given as an argument, for instance of `to`."""

    name: str


@dataclass(frozen=True)
class Pick:
    """One result of an operator with several is chosen lazily; `why` names the operator where it cannot be."""

    parts: tuple[Value | None, ...]
    why: str


def lowers(*names: str) -> Callable[[F], F]:
    """Registers a function for operators named without namespace and overload: `add`, `softmax`."""

    def register(function: F) -> F:
        for name in names:
            LOWERINGS[name] = function
        return function

    return register

"""The catalogue of operators: data that tools/crawl_operators.py has written, checked when it is read."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

DATA: Final = Path(__file__).with_name("operators.json")
Domain = Literal["any", "positive", "unit"]


class Operator(BaseModel):
    """One way to write one operator. Templates hold `{x}`, `{y}` (operands), `{w}` (a parameter), `{self}` (a module)
    and sizes; `rule` foretells the output's shape (see shapes.py); `cpu_ns` is per input element on one core.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    variant: str = ""
    form: Literal["module", "function", "method"]
    family: str
    signature: str
    create: str
    call: str
    operands: Literal[1, 2]
    ranks: tuple[int, ...]
    rule: Mapping[str, Any]
    sizes: Mapping[str, Literal["last", "channels"]] = {}
    picks: Mapping[str, Any] = {}
    weight: tuple[str, ...] = ()
    weights: bool = False
    whole: bool = False
    imports: tuple[str, ...] = ()
    domain: Domain = "any"
    range: Domain
    same_on: tuple[Domain, ...] = ()
    cpu_ns: float
    versions: Mapping[str, tuple[str, ...]]

    @property
    def source(self) -> str:
        """torch or transformers."""
        return self.name.partition(".")[0]

    @property
    def base(self) -> str:
        """`tanh` for torch.tanh, torch.nn.Tanh and torch.Tensor.tanh."""
        return self.name.rpartition(".")[2].lower()


@dataclass(frozen=True)
class Catalogue:
    """Operators that can be used here; `missing` are those of the data that the installed versions lack."""

    operators: tuple[Operator, ...]
    missing: tuple[str, ...] = ()

    def of(self, source: str) -> tuple[Operator, ...]:
        return tuple(operator for operator in self.operators if operator.source == source)


@cache
def catalogue() -> Catalogue:
    """Everything in the data file."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    return Catalogue(tuple(Operator.model_validate(entry) for entry in data["operators"]))


def without(missing: Collection[str]) -> Catalogue:
    """The catalogue less what is missing."""
    known = catalogue()
    kept = tuple(operator for operator in known.operators if operator.name not in missing)
    gone = sorted({operator.name for operator in known.operators if operator.name in missing})
    return Catalogue(kept, tuple(gone))

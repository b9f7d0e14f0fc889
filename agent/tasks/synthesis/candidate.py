"""Candidate number N of a kind: the same text for the same seed, catalogue and target, whatever came before it."""

import hashlib
import random
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol

from agent.export.similarity import Structure, structure_of
from agent.tasks.synthesis.compose import Composition, compose
from agent.tasks.synthesis.mix import TRANSFORMERS
from agent.tasks.synthesis.operators import Catalogue
from agent.tasks.synthesis.render import render
from agent.tasks.synthesis.sizing import DEVICES, Sized, estimate_flops, least_bytes, size
from agent.tasks.task import text_sha256

# A candidate whose time is outside of the band is tried again with sizes for this multiple of the time aimed at.
RESCALED: Final = 5.0
NAME_CHARS: Final = 48
BATCH: Final = re.compile(r"^batch_size = (\d+)$", re.MULTILINE)
PER_BATCH: Final = ("value_bytes", "least_bytes", "flops")  # of `about`, in proportion to the batch


@dataclass(frozen=True)
class NotMade:
    """Why there is no candidate for a number."""

    stage: str
    detail: str


@dataclass(frozen=True)
class Candidate:
    """A text and where it is from. `examined` is the text that the filters see: the same composition in CPU sizes
    where the target's own are too large for the machine that filters.
    """

    kind: str
    number: int
    attempt: int
    text: str
    examined: str
    ops: tuple[str, ...]
    structure: Structure
    about: dict[str, Any]

    @property
    def id(self) -> str:
        words = [name.rpartition(".")[2].lower() for name in self.ops]
        return f"{self.kind.replace('#', '')}-{self.number:05}-{'-'.join(words)}"[:NAME_CHARS].rstrip("-")

    @property
    def sha256(self) -> str:
        return text_sha256(self.text)

    @property
    def examined_sha256(self) -> str:
        return text_sha256(self.examined)

    @property
    def mark(self) -> str:
        """Equal for near-duplicates: the same structure of class Model on inputs of the same rank."""
        tokens = " ".join((str(self.about["rank"]), *self.structure.tokens))
        return hashlib.sha256(tokens.encode()).hexdigest()


def with_batch(candidate: Candidate, batch: int) -> Candidate:
    """The same task with another batch size, as it was measured; the model's estimate of the time falls away."""
    found = BATCH.search(candidate.text)
    if found is None:
        return candidate
    text = BATCH.sub(f"batch_size = {batch}", candidate.text, count=1)
    about = {name: value for name, value in candidate.about.items() if name != "estimate_ms"}
    about |= {name: about[name] * batch // int(found[1]) for name in PER_BATCH if name in about}
    return replace(candidate, text=text, about=about)


class Maker(Protocol):
    """Where candidates come from."""

    def candidate(self, kind: str, number: int, *, factor: float = 1.0, attempt: int = 0) -> Candidate | NotMade:
        """The same answer every time for the same arguments."""
        ...


@dataclass(frozen=True)
class Source:
    """What candidates are made from."""

    seed: int
    target: Literal["cpu", "cuda"]
    catalogue: Catalogue
    twin: bool = False

    def candidate(self, kind: str, number: int, *, factor: float = 1.0, attempt: int = 0) -> Candidate | NotMade:
        """Sized for `factor` times the time aimed at; of a twin's candidate only the twin is."""
        rng = random.Random(f"{self.seed}/{kind}/{number}")
        source = "transformers" if kind == TRANSFORMERS else "torch"
        operators = 1 if kind == TRANSFORMERS else int(kind.rpartition("#")[2])
        made = compose(rng, self.catalogue, operators=operators, source=source)
        sized = size(made, DEVICES[self.target], factor=1.0 if self.twin else factor) if made else None
        if made is None or sized is None:
            return NotMade("not composed", "no operators or sizes that fit")
        text = render(sized)
        examined = text
        if self.twin:
            small = size(made, DEVICES["cpu"], factor=factor)
            if small is None:
                return NotMade("not composed", "no sizes for a CPU")
            examined = render(small)
        structure = structure_of(text)
        if structure is None:
            return NotMade("not composed", "no class Model")
        about = _about(made, sized, self)
        return Candidate(kind, number, attempt, text, examined, made.names, structure, about)


def _about(made: Composition, sized: Sized, source: Source) -> dict[str, Any]:
    counts = Counter(node.operator.family for node in made.nodes)
    return {
        "operator_count": len(made.nodes),
        "families": dict(sorted(counts.items())),
        "rank": made.rank,
        "extra_inputs": len(made.extra_inputs),
        "estimate_ms": sized.estimate_ms,
        "value_bytes": sized.value_bytes,
        "least_bytes": least_bytes(sized),
        "flops": estimate_flops(sized),
        "sized_for": DEVICES[source.target].name,
    }

"""Candidates that a language model writes: it gets operators and the rules, its text goes through the same filters.

Which operators candidate N of a kind is about depends on the seed; what the model answers does not, so every answer is
kept beside the set, and the same file comes from the same answers.
"""

import json
import os
import random
import re
from pathlib import Path
from typing import Final

from agent.backends.base import Backend, Message
from agent.errors import ConfigError, RecordError, TaskError
from agent.export.similarity import structure_of
from agent.tasks.admission.rescale import grown, shrunk
from agent.tasks.importing import operators_of
from agent.tasks.synthesis.candidate import RESCALED, Candidate, NotMade
from agent.tasks.synthesis.mix import TRANSFORMERS
from agent.tasks.synthesis.operators import Catalogue, Operator
from agent.tasks.synthesis.sizing import DEVICES
from agent.tasks.task import check_text

SUFFIX: Final = ".proposals.jsonl"
TEMPLATES: Final = Path(__file__).with_name("templates")
OFFERED: Final = 2  # times as many operators as are wanted, so that the model can leave out what does not fit
BLOCK: Final = re.compile(r"```[ \t]*(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)
NOT_WRITTEN: Final = "no usable proposal"


class Proposer:
    """Asks a backend for candidates, each number once; answers lie in `path`."""

    def __init__(self, backend: Backend, path: Path, *, seed: int, target: str, catalogue: Catalogue) -> None:
        self.backend = backend
        self.path = path
        self.seed = seed
        self.target = target
        self.catalogue = catalogue
        self._answers = dict(_read(path))

    def candidate(self, kind: str, number: int, *, factor: float = 1.0, attempt: int = 0) -> Candidate | NotMade:
        """The text of the answer, in other sizes where the factor asks for that. Raises BackendError."""
        answer = self._answer(kind, number)
        text = _python(answer)
        try:
            check_text(text, label="the proposal")
        except TaskError as error:
            return NotMade(NOT_WRITTEN, error.message)
        structure = structure_of(text)
        if structure is None:
            return NotMade(NOT_WRITTEN, "the proposal has no class Model")
        names = operators_of(text)
        if kind != TRANSFORMERS and f"torch#{len(names)}" != kind:
            return NotMade(NOT_WRITTEN, f"{len(names)} operators instead of {kind.partition('#')[2]}")
        if factor != 1.0:
            resized = _resized(text, factor)
            if resized is None:
                return NotMade(NOT_WRITTEN, "its sizes cannot be changed")
            text = resized
        about = {"operator_count": len(names), "rank": 0, "written_by": self.backend.name}
        return Candidate(kind, number, attempt, text, text, names, structure, about)

    def _answer(self, kind: str, number: int) -> str:
        key = f"{kind}/{number}"
        if key not in self._answers:
            prompt = self._prompt(kind, number)
            reply = self.backend.chat([Message(role="user", content=prompt)], ())
            self._answers[key] = reply.text
            self._keep({"key": key, "answer": reply.text, "model": reply.model})
        return self._answers[key]

    def _prompt(self, kind: str, number: int) -> str:
        rng = random.Random(f"{self.seed}/{kind}/{number}/proposal")
        count = 1 if kind == TRANSFORMERS else int(kind.partition("#")[2])
        pool = self.catalogue.of("transformers" if kind == TRANSFORMERS else "torch")
        operators = rng.sample(_distinct(pool), OFFERED * count)
        device = DEVICES[self.target]
        name = "two CPU cores" if device.cores else "an NVIDIA H200"
        return _render(count=count, operators=operators, device=name, memory_gb=device.memory_bytes >> 30)

    def _keep(self, data: dict[str, str]) -> None:
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(data) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RecordError(f"cannot write {self.path}: {error.strerror}", full=True) from error


def proposals_path(output: Path) -> Path:
    return output.with_name(output.name + SUFFIX)


def _read(path: Path) -> list[tuple[str, str]]:
    """Answers of an earlier call; a torn last line is asked for again."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    if lines[-1]:
        path.write_bytes(b"\n".join(lines[:-1]) + (b"\n" if lines[:-1] else b""))
    found = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            data = json.loads(line)
            found.append((str(data["key"]), str(data["answer"])))
        except (ValueError, KeyError, TypeError):
            raise ConfigError(
                f"{path}:{number} is no kept answer", hint="remove the file, or choose another -o"
            ) from None
    return found


def _python(answer: str) -> str:
    """The longest block of the answer; all of it where there is none."""
    blocks = [found[1] for found in BLOCK.finditer(answer)]
    return max(blocks, key=len, default=answer).strip() + "\n"


def _resized(text: str, factor: float) -> str | None:
    variants = shrunk(text) if factor < 1 else grown(text)
    best = min(variants, key=lambda one: abs(one.factor / factor - 1), default=None)
    return best.text if best and best.factor / factor < 2 * RESCALED else None


def _distinct(pool: tuple[Operator, ...]) -> list[Operator]:
    """One operator per name."""
    return list({operator.name: operator for operator in pool}.values())


def _render(**values: object) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("propose.j2").render(**values).strip()

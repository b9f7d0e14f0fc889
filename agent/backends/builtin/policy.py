"""The built-in policy as a coroutine: it yields a turn (words and actions) and is sent what the actions gave.

It knows nothing but the conversation, like a language model: the same messages always give the same next turn.
"""

import json
import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from agent.backends.builtin import reading, submission
from agent.backends.builtin.graph import Graph, TraceReport
from agent.backends.builtin.ir import Unsupported
from agent.backends.builtin.text import render
from agent.sandbox.base import TOOLS

TRACE_FILE: Final = "/tmp/trace.json"
BENCH_ROUNDS: Final = 40
NEAR_COPY: Final = 0.3
WORTH: Final = 0.97  # of the default's time: what is not clearly faster is left alone
Action = tuple[str, dict[str, Any]]


class GiveUp(Exception):
    """Why this task ends without a submission."""


@dataclass(frozen=True)
class Turn:
    """What is said, and the actions with their arguments."""

    text: str
    actions: tuple[Action, ...] = ()


@dataclass(frozen=True)
class Scene:
    """What the opening messages say: the target, how much of an output is shown, whether there is nvcc."""

    target: str = "cpu"
    shown_chars: int = 10_000
    compiles: bool = True

    @property
    def in_triton(self) -> bool:
        """Without nvcc there is nothing else to write kernels for a GPU in."""
        return self.target == "cuda" and not self.compiles


Play = Generator[Turn, Sequence[str], None]


@dataclass
class Notes:
    """What the policy has learnt so far, for its last words."""

    target: str
    variant: submission.Variant
    operators: int = 0
    kernels: int = 0
    tried: list[str] = field(default_factory=list)
    copying: float | None = None  # speed of the chosen kernels as a share of a plain copy's of as many bytes


def play(scene: Scene) -> Play:
    """Turns until a submission. Raises GiveUp."""
    notes = Notes(scene.target, submission.variants(scene.target)[0])
    graph = yield from _trace(scene)
    made = _made(graph, notes, in_triton=scene.in_triton)
    if scene.in_triton:
        seen = yield Turn(_say("write", notes=notes), (*_writes(made), ("verify", {})))
        _check_verified(seen[-1])
    else:
        seen = yield Turn(_say("write", notes=notes), (*_writes(made), ("compile", {})))
        _check_built(seen[-1])
        yield from _choose_variant(graph, notes)
    if notes.copying is not None and notes.copying >= NEAR_COPY:
        # A profile would change nothing: there is no other way to write it, and the judge times it anyway.
        seen = yield Turn(_say("verify", notes=notes), (("verify", {}),))
    else:
        seen = yield Turn(_say("profile", notes=notes), (("profile", {}),))
    yield from _settle(seen[-1], notes)


def _say(moment: str, **values: Any) -> str:
    return render("words.j2", moment=moment, **values).strip()


def _trace(scene: Scene) -> Generator[Turn, Sequence[str], Graph]:
    command = f"python -I {TOOLS}/trace_task.py model.py --target {scene.target} > {TRACE_FILE}; cat {TRACE_FILE}"
    seen = yield Turn(_say("trace"), (("bash", {"command": command}),))
    text = reading.output(seen[0])
    if reading.is_shortened(seen[0]):
        text = yield from _in_parts(seen[0], scene)
    try:
        report = TraceReport.model_validate_json(text.strip())
    except (ValidationError, ValueError):
        raise GiveUp(f"the task could not be traced: {text.strip()[:200] or 'no output'}") from None
    if report.graph is None:
        raise GiveUp("; ".join(reason.detail for reason in report.reasons) or report.status)
    return report.graph


def _in_parts(first: str, scene: Scene) -> Generator[Turn, Sequence[str], str]:
    """A report that is longer than one observation is read in pieces."""
    size = max(200, scene.shown_chars - 100)
    text = ""
    while True:
        command = f"tail -c +{len(text) + 1} {TRACE_FILE} | head -c {size}"
        seen = yield Turn(_say("parts", done=len(text)), (("bash", {"command": command}),))
        part = reading.output(seen[0])
        text += part
        if len(part) < size:
            return text


def _made(graph: Graph, notes: Notes, *, in_triton: bool) -> submission.Submission:
    try:
        made = submission.make_triton(graph) if in_triton else submission.make(graph, notes.target, notes.variant)
    except Unsupported as error:
        raise GiveUp(f"no kernel for {error}") from None
    notes.operators, notes.kernels = len(graph.nodes), made.kernels
    return made


def _writes(made: submission.Submission) -> list[Action]:
    return [("write_file", {"path": path, "content": text}) for path, text in made.files.items()]


def _check_built(compiled: str) -> None:
    """Raises GiveUp where the submission does not build."""
    if not compiled.startswith("Built"):
        raise GiveUp(f"the kernels did not compile: {reading.first_reason(compiled)}")


def _check_verified(verified: str) -> None:
    """Raises GiveUp where the submission is not right: then nothing is submitted."""
    if not verified.startswith("Verified"):
        raise GiveUp(f"the kernels were not accepted: {reading.first_reason(verified)}")


def _choose_variant(graph: Graph, notes: Notes) -> Generator[Turn, Sequence[str], None]:
    variants = submission.variants(notes.target)
    command = render(f"{notes.target}/bench.sh.j2", variants=variants)
    files = submission.bench(graph, notes.target, rounds=BENCH_ROUNDS)
    actions: list[Action] = [("write_file", {"path": path, "content": text}) for path, text in files.items()]
    actions.append(("bash", {"command": command}))
    seen = yield Turn(_say("variants", notes=notes, variants=variants), tuple(actions))
    times = reading.variant_times(seen[-1])
    base = times.get(0)
    if base is None:
        return
    best = min(times, key=lambda number: times[number])
    copy = reading.copy_time(seen[-1])
    notes.copying = None if copy is None else copy / times[best]
    notes.tried = [f"{variants[number].words}: {time:.0f} us" for number, time in sorted(times.items())]
    if best == 0 or times[best] > base * WORTH:
        return
    old, notes.variant = notes.variant, variants[best]
    edits = tuple(
        ("edit_file", {"path": submission.kernel_file(notes.target), "old": before, "new": after})
        for before, after in zip(old.settings, notes.variant.settings, strict=True)
        if before != after
    )
    yield Turn(_say("chosen", notes=notes), (*edits, ("compile", {})))


def _settle(checked: str, notes: Notes) -> Play:
    _check_verified(checked)
    ratios = reading.speedups(checked)
    yield Turn(
        _say("submit", notes=notes, ratios=ratios),
        (("submit", {"summary": _say("summary", notes=notes, ratios=ratios)}),),
    )


def arguments_text(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


_SYSTEM: Final = re.compile(r"^- Target: (\w+)\.", re.MULTILINE)
_NVCC: Final = re.compile(r"^- nvcc: \S", re.MULTILINE)
_SHOWN: Final = re.compile(r"first and last (\d+) characters")


def scene_of(system: str) -> Scene:
    """Read from the system prompt, where every policy finds it."""
    target, shown = _SYSTEM.search(system), _SHOWN.search(system)
    return Scene(
        target.group(1) if target else "cpu",
        2 * int(shown.group(1)) if shown else 10_000,
        compiles=_NVCC.search(system) is not None,
    )

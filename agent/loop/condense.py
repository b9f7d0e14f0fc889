"""Condenses the older turns of a conversation into a note with the best kernel and what was done, to fit a budget.

A pure function of the conversation, the kept files and the budget in characters: it always ends, keeps the order of
what stays, and fits as long as the opening leaves room. Covers text and native calls alike: turns stay whole or go.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.backends.base import Message
from agent.backends.sanitize import parse_object
from agent.loop.observations import Excerpt, excerpt_text
from agent.loop.prompts import render

EXAMPLE_MARK: Final = "# Example"
"""What follows this line in a short opening goes once the model has files of its own to look at."""
REFILL: Final = 0.65
"""How full a freshly condensed view is at most: until it has filled up, its beginning stays the same for caches."""
SMALLEST_PART: Final = 200
_MOST_STEPS: Final = 8
_CALL_CHARS: Final = 60
_OUTCOME_CHARS: Final = 100
_FILES_SHARE: Final = 0.5
_FRAME_CHARS: Final = 200
"""The note's own words."""
_ROOM_FOR_ANSWERS: Final = 4


@dataclass(frozen=True)
class Kept:
    """What must stay in view: (name, text) of the best verified version, or of what the workspace holds now."""

    files: tuple[tuple[str, str], ...] = ()
    best: bool = False
    speedup: float | None = None
    changed: bool = False


@dataclass(frozen=True)
class View:
    """What the model is shown for one turn; `hidden` of its turns are not in it as they were."""

    messages: tuple[Message, ...]
    hidden: int

    @property
    def chars(self) -> int:
        return sum(map(size_of, self.messages))


def condense(messages: Sequence[Message], kept: Kept, *, budget: int, cut: int = 0) -> View:
    """The opening, then what stands for the first turns, then the other turns as they were.

    At least `cut` turns are condensed; when that does not fit into `budget` characters, so many more that the view is
    at most REFILL of it, the last turn included if need be. An opening that leaves no room comes out alone.
    """
    opening, turns = split_turns(messages)
    if not turns:
        return View(tuple(messages), 0)
    cut = min(cut, len(turns))
    view = _assembled(opening, turns, kept, cut, budget)
    if view.chars <= budget:
        return view
    for more in range(cut, len(turns)):
        view = _assembled(opening, turns, kept, more, int(budget * REFILL))
        if view.chars <= budget * REFILL:
            return view
    view = _assembled(opening, turns, kept, max(cut, len(turns) - 1), budget)
    return view if view.chars <= budget else _assembled(opening, turns, kept, len(turns), budget)


def split_turns(messages: Sequence[Message]) -> tuple[list[Message], list[list[Message]]]:
    """What comes before the first reply, and each reply with everything that follows it."""
    starts = [at for at, message in enumerate(messages) if message.role == "assistant"]
    if not starts:
        return list(messages), []
    ends = [*starts[1:], len(messages)]
    turns = [list(messages[start:end]) for start, end in zip(starts, ends, strict=True)]
    return list(messages[: starts[0]]), turns


def _assembled(opening: list[Message], turns: list[list[Message]], kept: Kept, cut: int, budget: int) -> View:
    rest = tuple(message for turn in turns[cut:] for message in turn)
    if cut == 0:
        return View((*opening, *rest), 0)
    if kept.files:
        opening = [_without_example(message) for message in opening]
    used = sum(map(size_of, opening)) + sum(map(size_of, rest))
    note = _note(turns[:cut], kept, room=budget - used, last=cut == len(turns))
    # Joined to the last message of the opening: servers want the roles to take turns.
    told = opening[-1].model_copy(update={"content": f"{opening[-1].content}\n\n{note}"})
    return View((*opening[:-1], told, *rest), cut)


def _without_example(message: Message) -> Message:
    if message.role != "system":
        return message
    head, mark, _ = message.content.partition(f"\n{EXAMPLE_MARK}\n")
    return message.model_copy(update={"content": head}) if mark else message


@dataclass(frozen=True)
class Step:
    """One action that was taken, in one line; `times` in a row."""

    call: str
    outcome: str
    times: int = 1


@dataclass(frozen=True)
class ShownFile:
    name: str
    shown: Excerpt


def _note(turns: list[list[Message]], kept: Kept, *, room: int, last: bool) -> str:
    """What stands for `turns`, in about `room` characters: the files first, then what came last, then the steps."""
    steps = [step for turn in turns for step in _steps(turn)]
    files = _shown_files(kept, room=int(max(room, 0) * _FILES_SHARE))
    used = sum(len(file.shown.head) + len(file.shown.tail) + len(file.name) + 20 for file in files)
    left = room - used - _FRAME_CHARS
    ending = _ending(turns[-1], room=max(SMALLEST_PART, left * 2 // 3)) if last else ""
    shown = _fitting(_collapsed(steps), room=left - len(ending))
    return render(
        "condensed",
        hidden=len(turns),
        steps=shown,
        more=len(_collapsed(steps)) - len(shown),
        files=files,
        best=kept.best,
        speedup=kept.speedup,
        changed=kept.changed,
        last=ending,
    )


def _steps(turn: list[Message]) -> list[Step]:
    results = {message.tool_call_id: message.content for message in turn if message.role == "tool"}
    return [
        Step(_call_words(call.name, call.arguments), _first_line(results.get(call.id, "")))
        for call in turn[0].tool_calls
    ]


def _call_words(name: str, arguments: str) -> str:
    values = parse_object(arguments) or {}
    first = str(values.get("path") or values.get("command") or "").strip().splitlines()
    return f"{name} {first[0]}"[:_CALL_CHARS].strip() if first else name


def _first_line(text: str) -> str:
    """The first line that tells something, with the second where the first only introduces it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()][:2]
    shown = " ".join(lines) if lines and lines[0].endswith((":", ".")) else "".join(lines[:1])
    return shown[:_OUTCOME_CHARS]


def _collapsed(steps: list[Step]) -> list[Step]:
    result: list[Step] = []
    for step in steps:
        if result and (result[-1].call, result[-1].outcome) == (step.call, step.outcome):
            result[-1] = Step(step.call, step.outcome, result[-1].times + 1)
        else:
            result.append(step)
    return result


def _fitting(steps: list[Step], *, room: int) -> list[Step]:
    """The newest of them that fit, and the last one in any case: without it a model does the same again."""
    chosen: list[Step] = []
    for step in reversed(steps[-_MOST_STEPS:]):
        room -= len(step.call) + len(step.outcome) + 20
        if room < 0 and chosen:
            break
        chosen.insert(0, step)
    return chosen


def _shown_files(kept: Kept, *, room: int) -> list[ShownFile]:
    """Each file whole where all fit; else each cut to its share."""
    total = sum(len(text) for _, text in kept.files)
    if total <= room:
        return [ShownFile(name, excerpt_text(text, limit=len(text))) for name, text in kept.files]
    share = max(room, SMALLEST_PART) / max(total, 1)
    return [ShownFile(name, excerpt_text(text, limit=int(len(text) * share))) for name, text in kept.files]


def _ending(turn: list[Message], *, room: int) -> str:
    """The newest of the turn's results and what was said after them, as much as there is room for."""
    said = [message.content for message in turn[1:]][-_ROOM_FOR_ANSWERS:]
    shown = excerpt_text("\n\n".join(said), limit=room)
    return render("shortened", shown=shown) if shown.omitted else shown.head


def size_of(message: Message) -> int:
    """Characters of one message. A text at least as long as its calls is taken to hold them (fenced text, JSON)."""
    calls = sum(len(call.name) + len(call.arguments) + 20 for call in message.tool_calls)
    text = len(message.content)
    return (text if text >= calls else text + calls) + 20


def read_files(folder: Path) -> tuple[tuple[str, str], ...]:
    """Names and texts of a submission's files, kernels first; none where there is no such folder."""
    if not folder.is_dir():
        return ()
    paths = sorted((path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()), key=_order)
    return tuple((str(path.relative_to(folder)), path.read_text("utf-8", "replace").rstrip()) for path in paths)


def _order(path: Path) -> tuple[bool, str]:
    return path.name == "model_new.py", str(path)

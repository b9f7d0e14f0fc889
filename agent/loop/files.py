"""The actions write_file and edit_file: whole files and exact replacements, atomic, with a unified diff for people."""

import difflib
import hashlib
import itertools
from collections.abc import Iterator
from typing import Final

from agent.loop.actions import EditFile, WriteFile
from agent.loop.prompts import render
from agent.loop.workbench import Outcome, Workbench

READ_BYTES: Final = 4 << 20
DIFF_LINES: Final = 2000
NEAR_LINES: Final = 3
MOST_PLACES: Final = 1000


class _Unusable(Exception):
    """The file cannot be read or written; the message is for the model."""


def write_file(bench: Workbench, arguments: WriteFile) -> Outcome:
    """Create or replace a file; what was there before only matters for the diff."""
    old = _text_before(bench, arguments.path)
    try:
        _write(bench, arguments.path, arguments.content)
    except _Unusable as error:
        return _failed("write_file", arguments.path, str(error))
    size = len(arguments.content.encode("utf-8"))
    text = render(
        "written", path=arguments.path, bytes=size, lines=_count_lines(arguments.content), existed=old is not None
    )
    return Outcome(text, "ok", diff=unified_diff(arguments.path, old or "", arguments.content))


def edit_file(bench: Workbench, arguments: EditFile) -> Outcome:
    """Replace `old` by `new` where it occurs exactly once; otherwise nothing changes and the model learns why."""
    path, old, new = arguments.path, arguments.old, arguments.new
    try:
        before = _read(bench, path)
        places = occurrences(before, old)
        if len(places) != 1 or old == new:
            near = nearest_lines(before, old) if not places else ()
            return Outcome(render("edit_failed", path=path, places=places, near=near, same=old == new), "failed")
        after = before.replace(old, new)
        _write(bench, path, after)
    except _Unusable as error:
        return _failed("edit_file", path, str(error))
    return _edited(path, before, after, line=places[0])


def content_sha256(bench: Workbench, path: str) -> str | None:
    """Of a file that can be edited; None for any other."""
    try:
        return _sha256(_read(bench, path))
    except _Unusable:
        return None


def resume_edit(bench: Workbench, arguments: EditFile, before_sha256: str | None) -> Outcome | None:
    """Finish an edit that a crash interrupted: made now, or recognised as made; None when neither can be told.

    Writing is atomic, so the file is either as it was, or differs from that in exactly the one replacement.
    """
    if before_sha256 is None:
        return edit_file(bench, arguments)  # the file could not be edited then
    try:
        content = _read(bench, arguments.path)
    except _Unusable:
        return None
    if _sha256(content) == before_sha256:
        return edit_file(bench, arguments)
    for start in itertools.islice(_starts(content, arguments.new), MOST_PLACES):
        before = content[:start] + arguments.old + content[start + len(arguments.new) :]
        if _sha256(before) == before_sha256:
            return _edited(arguments.path, before, content, line=_line_of(content, start))
    return None


def occurrences(text: str, part: str) -> list[int]:
    """Line numbers (from 1) at which `part` begins, overlapping ones included; at most MOST_PLACES of them."""
    return [_line_of(text, start) for start in itertools.islice(_starts(text, part), MOST_PLACES)]


def nearest_lines(text: str, part: str) -> list[tuple[int, str]]:
    """Lines of the file that look most like the first line of `part` that has letters: (number, line)."""
    wanted = next((line.strip() for line in part.splitlines() if line.strip()), "")
    lines = text.splitlines()[: 10 * DIFF_LINES]
    close = difflib.get_close_matches(wanted, {line.strip() for line in lines}, n=NEAR_LINES, cutoff=0.5)
    found = [(number, line) for number, line in enumerate(lines, 1) if line.strip() in close]
    return found[: 2 * NEAR_LINES]


def unified_diff(path: str, old: str, new: str) -> str | None:
    """None where either side is too long to be compared line by line in a moment."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    if max(len(before), len(after)) > DIFF_LINES:
        return None
    lines = difflib.unified_diff(before, after, f"a/{path}" if old else "/dev/null", f"b/{path}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _starts(text: str, part: str) -> Iterator[int]:
    start = text.find(part)
    while start >= 0:
        yield start
        start = text.find(part, start + 1)


def _line_of(text: str, start: int) -> int:
    return text.count("\n", 0, start) + 1


def _edited(path: str, before: str, after: str, *, line: int) -> Outcome:
    return Outcome(render("edited", path=path, line=line), "ok", diff=unified_diff(path, before, after))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _text_before(bench: Workbench, path: str) -> str | None:
    try:
        return bench.sandbox.read(path, limit=READ_BYTES).decode("utf-8", "replace")
    except OSError:
        return None


def _read(bench: Workbench, path: str) -> str:
    try:
        data = bench.sandbox.read(path, limit=READ_BYTES + 1)
    except OSError as error:
        raise _Unusable(_why(error)) from error
    if len(data) > READ_BYTES:
        raise _Unusable(f"it is larger than {READ_BYTES >> 20} MiB")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _Unusable(f"it is not UTF-8 text (byte {error.start})") from error


def _write(bench: Workbench, path: str, content: str) -> None:
    try:
        bench.sandbox.write(path, content.encode("utf-8"))
    except OSError as error:
        raise _Unusable(_why(error)) from error


def _why(error: OSError) -> str:
    reasons = {
        FileNotFoundError: "there is no such file",
        IsADirectoryError: "it is a folder",
        NotADirectoryError: "a parent of it is a file",
        PermissionError: "it cannot be reached from the workspace or is read-only",
    }
    return reasons.get(type(error), error.strerror or str(error))


def _failed(action: str, path: str, why: str) -> Outcome:
    return Outcome(render("file_failed", action=action, path=path, why=why), "failed")


def _count_lines(text: str) -> int:
    return len(text.splitlines())

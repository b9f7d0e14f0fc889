"""Where candidates come from: all on standard input, or one after another from a file that somebody else fills."""

import json
from collections import deque
from pathlib import Path
from typing import Any, Protocol

Candidate = dict[str, Any]


class Source(Protocol):
    """`ended`: nothing comes any more, and nothing is left."""

    @property
    def ended(self) -> bool: ...

    def take(self) -> Candidate | None:
        """The next one; None where there is none yet."""
        ...


class Given:
    """All of them are known."""

    def __init__(self, candidates: list[Candidate]) -> None:
        self._left = deque(candidates)

    @property
    def ended(self) -> bool:
        return not self._left

    def take(self) -> Candidate | None:
        return self._left.popleft() if self._left else None


class Queue:
    """Lines of a file that grows; the last is {"end": true}. Candidates cannot write there: it is mounted read-only."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._torn = b""
        self._left: deque[Candidate] = deque()
        self._closed = False

    @property
    def ended(self) -> bool:
        return self._closed and not self._left

    def take(self) -> Candidate | None:
        if not self._left and not self._closed:
            self._read()
        return self._left.popleft() if self._left else None

    def _read(self) -> None:
        *whole, self._torn = (self._torn + self._file.read()).split(b"\n")
        for line in whole:
            candidate = json.loads(line)
            if candidate.get("end"):
                self._closed = True
            else:
                self._left.append(candidate)

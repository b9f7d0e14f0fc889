"""Which sample is tried next: owed runs, then the first sample of every task, then the others of tasks that can be one.

A task's other samples are held back until its first one has begun, so that a task that is none is refused once and not
K times. A failed attempt is tried again after a pause that grows.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Iterable
from typing import Final

from agent.batch.scan import Key, Sample

RETRY_S: Final = 5.0
RETRY_FACTOR: Final = 4.0


class Schedule:
    """Only what is still to be done; the driver says what became of it."""

    def __init__(self, samples: Iterable[Sample], *, retry_s: float = RETRY_S) -> None:
        self._retry_s = retry_s
        self._samples: dict[Key, Sample] = {}
        self._held: dict[str, deque[Key]] = {}
        self._trying: dict[str, Key] = {}
        self._admitted: set[str] = set()
        self._later: list[tuple[float, int, Key]] = []
        self._number = itertools.count()
        owed: list[Key] = []
        new: list[Key] = []
        for sample in samples:
            if sample.run is not None:
                self._admitted.add(sample.key[0])
            if sample.state in ("owed", "new"):
                self._samples[sample.key] = sample
                (owed if sample.state == "owed" else new).append(sample.key)
        # Stable: tasks stay in their order, sample after sample.
        self._ready = deque((*owed, *sorted(new, key=lambda key: key[1])))

    @property
    def owes(self) -> bool:
        """Whether anything waits to be started."""
        return bool(self._ready or self._later or any(self._held.values()))

    def next(self, now: float) -> Sample | None:
        """The next sample that may start now; it is then the caller's."""
        while self._later and self._later[0][0] <= now:
            self._ready.appendleft(heapq.heappop(self._later)[2])
        while self._ready:
            key = self._ready.popleft()
            sample = self._samples.get(key)
            if sample is None:  # its task was refused meanwhile
                continue
            task = key[0]
            if task not in self._admitted and self._trying.setdefault(task, key) != key:
                self._held.setdefault(task, deque()).append(key)
                continue
            return sample
        return None

    def admit(self, task: str) -> None:
        """An episode of the task has begun: its other samples may start."""
        if task not in self._admitted:
            self._admitted.add(task)
            self._release(task)

    def refuse(self, task: str) -> None:
        """Nothing of this task is started any more."""
        self._held.pop(task, None)
        for key in [key for key in self._samples if key[0] == task]:
            del self._samples[key]

    def ended(self, sample: Sample, now: float, *, wait: bool = True) -> None:
        """What an attempt left: nothing to do, or a new try after a pause, or (`wait` false) after the others."""
        task = sample.key[0]
        if self._trying.get(task) == sample.key:
            del self._trying[task]
            self._release(task)
        if sample.state not in ("owed", "new"):
            self._samples.pop(sample.key, None)
            return
        self._samples[sample.key] = sample
        if not wait:  # not before the others: it may be the one that nobody can answer
            self._ready.append(sample.key)
            return
        pause_s = self._retry_s * RETRY_FACTOR ** max(0, sample.burned - 1) * random.uniform(0.75, 1.25)
        heapq.heappush(self._later, (now + pause_s, next(self._number), sample.key))

    def _release(self, task: str) -> None:
        self._ready.extend(self._held.pop(task, ()))

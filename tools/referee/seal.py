"""Secret samples of a worker's device memory: where outputs lie when the clock ends, and everywhere before it starts.

A stopped process computes nothing on the CPU, but kernels that it has launched go on. The referee's own reads of the
outputs therefore end the clock: what is written later differs from the samples, and what delays them was timed.
Covers work on other streams, in graphs, in kernels that wait for something, and forged synchronisation. What is
finished late in a small share of the outputs is found over many batches, not in every one.

Work can also be queued on the GPU before the clock, to begin as soon as the referee writes the inputs (a stream waits
for a value in memory without occupying anything). Random pieces of what the worker has named of its memory, taken
before the first input is written and again after the last, must not have changed. Not covered: early work in memory
that the worker keeps to itself, to be copied inside the clock.
"""

import bisect
import random
from dataclasses import dataclass
from typing import Final

import torch

from referee.stores import DeviceMemory

SAMPLES: Final = 16
SAMPLE_BYTES: Final = 4096
PIECES: Final = 96
PIECE_BYTES: Final = 64


@dataclass(frozen=True)
class Seal:
    """What the samples held when the clock ended."""

    places: list[tuple[int, int]]
    content: torch.Tensor


class Lots:
    """Drawn before the clock starts: which tensors of the batch, and how far into each."""

    def __init__(self) -> None:
        generator = random.SystemRandom()
        # The last tensor of the batch is always among them.
        self._drawn = [(1.0, generator.random()), *((generator.random(), generator.random()) for _ in range(SAMPLES))]

    def places(self, pointers: list[int], sizes: list[int]) -> list[tuple[int, int]]:
        """(address, bytes); `sizes` are those of the tensors of one call."""
        found = []
        for which, where in self._drawn if pointers else ():
            at = min(int(which * len(pointers)), len(pointers) - 1)
            size = sizes[at % len(sizes)]
            count = min(size, SAMPLE_BYTES)
            found.append((pointers[at] + int(where * (size - count)), count))
        return found


def take(store: DeviceMemory, lots: Lots, pointers: list[int], sizes: list[int]) -> Seal:
    places = lots.places(pointers, sizes)
    return Seal(places=places, content=_content(store, places))


def broken(store: DeviceMemory, seal: Seal) -> bool:
    """Whether a sample has changed since."""
    return not torch.equal(seal.content, _content(store, seal.places))


@dataclass(frozen=True)
class Eve:
    """What random pieces of a worker's memory held while nothing had been written yet."""

    places: list[tuple[int, int]]
    content: torch.Tensor


def before(store: DeviceMemory, written: list[tuple[int, int]]) -> Eve:
    """`written` are the spans that the referee is about to fill: pieces there would change."""
    generator = random.SystemRandom()
    taken = sorted(written)
    lows = [low for low, _ in taken]
    spans = [span for span in store.spans() if span[1] - span[0] >= 2 * PIECE_BYTES]
    places = []
    for low, high in generator.choices(spans, weights=[high - low for low, high in spans], k=PIECES) if spans else ():
        place = low + generator.randrange((high - low) // PIECE_BYTES - 1) * PIECE_BYTES
        at = bisect.bisect_left(lows, place + PIECE_BYTES) - 1
        if at < 0 or taken[at][1] <= place:
            places.append((place, PIECE_BYTES))
    return Eve(places=places, content=_content(store, places))


def disturbed(store: DeviceMemory, eve: Eve) -> bool:
    """Whether anything but the referee has written: the process is stopped, so it can only have been the GPU."""
    return not torch.equal(eve.content, _content(store, eve.places))


def _content(store: DeviceMemory, places: list[tuple[int, int]]) -> torch.Tensor:
    parts = [store.part(address, count) for address, count in places if count]
    content = torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    return content

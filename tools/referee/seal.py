"""Secret samples of a worker's device memory: where outputs lie when the clock ends, and everywhere before it starts.

A stopped process computes nothing on the CPU, but kernels that it has launched go on. The referee's own reads of the
outputs therefore end the clock: what is written later differs from the samples, and what delays them was timed.
Covers work on other streams, in graphs, in kernels that wait for something, and forged synchronisation. What is
finished late in a small share of the outputs is found over many batches, not in every one.

Work can also be queued on the GPU before the clock, to begin as soon as the referee writes the inputs (a stream waits
for a value in memory without occupying anything). What it has computed lies there when the clock starts: samples from
all the worker's allocations, taken then, show outputs that the batch itself did not write.
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
    """What random pieces of a worker's memory held just before the clock started."""

    places: list[int]
    content: torch.Tensor


def before(store: DeviceMemory) -> Eve:
    generator = random.SystemRandom()
    spans = store.spans()
    sizes = [high - low for low, high in spans]
    places = []
    for low, high in generator.choices(spans, weights=sizes, k=PIECES) if spans else ():
        if high - low >= 2 * PIECE_BYTES:
            places.append(low + generator.randrange((high - low) // PIECE_BYTES - 1) * PIECE_BYTES)
    return Eve(places=places, content=_content(store, [(place, PIECE_BYTES) for place in places]))


def early(store: DeviceMemory, eve: Eve, outputs: list[tuple[int, int]]) -> int:
    """How many pieces lie in these (sorted) outputs and held their final content already.

    Pieces of one repeated byte say nothing: fresh memory holds a pattern, and outputs may be zeros.
    """
    lows = [low for low, _ in outputs]
    inside = []
    for at, place in enumerate(eve.places):
        span = bisect.bisect_right(lows, place) - 1
        if span >= 0 and place + PIECE_BYTES <= outputs[span][1]:
            inside.append(at)
    if not inside:
        return 0
    now = _content(store, [(eve.places[at], PIECE_BYTES) for at in inside]).view(-1, PIECE_BYTES)
    then = eve.content.view(-1, PIECE_BYTES)[inside]
    telling = (now != now[:, :4].repeat(1, PIECE_BYTES // 4)).any(dim=1)
    return int(((now == then).all(dim=1) & telling).sum())


def _content(store: DeviceMemory, places: list[tuple[int, int]]) -> torch.Tensor:
    parts = [store.part(address, count) for address, count in places if count]
    content = torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    return content

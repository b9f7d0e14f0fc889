"""Secret samples of a batch's outputs, taken from device memory while the clock still runs.

A stopped process computes nothing on the CPU, but kernels that it has launched go on. The referee's own reads of the
outputs therefore end the clock: what is written later differs from the samples, and what delays them was timed.
Covers work on other streams, in graphs, in kernels that wait for something, and forged synchronisation. What is
finished late in a small share of the outputs is found over many batches, not in every one.
"""

import random
from dataclasses import dataclass
from typing import Final

import torch

from referee.memory import DeviceMemory

SAMPLES: Final = 16
SAMPLE_BYTES: Final = 4096


@dataclass(frozen=True)
class Seal:
    """What the samples held when the clock ended."""

    places: list[tuple[int, int]]
    content: torch.Tensor


def take(store: DeviceMemory, pointers: list[int], sizes: list[int]) -> Seal:
    """`sizes` are the bytes of the tensors of one call; the last tensor of the batch is always among the samples."""
    generator = random.SystemRandom()
    known = [at for at in range(len(pointers)) if sizes[at % len(sizes)]]
    chosen = [known[-1], *generator.choices(known, k=SAMPLES - 1)] if known else []
    places = []
    for at in chosen:
        size = sizes[at % len(sizes)]
        count = min(size, SAMPLE_BYTES)
        places.append((pointers[at] + generator.randrange(size - count + 1), count))
    return Seal(places=places, content=_content(store, places))


def broken(store: DeviceMemory, seal: Seal) -> bool:
    """Whether a sample has changed since."""
    return not torch.equal(seal.content, _content(store, seal.places))


def _content(store: DeviceMemory, places: list[tuple[int, int]]) -> torch.Tensor:
    parts = [store.part(address, count) for address, count in places]
    content = torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    return content

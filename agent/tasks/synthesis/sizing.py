"""A deterministic model of eager time, and sizes for which it foretells a time in the middle of the band.

Times are never used to choose sizes directly: they differ from run to run, and the same seed must give the same file.
The model is coarse (a factor of three is usual); the band of 1 to 100 ms forgives that, and candidates outside of it
are tried once more with other sizes. Constants: cpu measured on two cores of a virtual Xeon with AVX-512; h200 from
data sheets (4.8 TB/s, 67 TFLOP/s float32), at the shares that eager torch reaches. Memory is bounded as well: on a CPU
to what a judge can hold several times over in a sandbox of 8 GB (168 MB of values could be judged there, 180 not).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from agent.tasks.synthesis import shapes
from agent.tasks.synthesis.compose import Composition
from agent.tasks.synthesis.shapes import Shape

ITEM_BYTES: Final = 4
NICE: Final = tuple(sorted({size << power for size in (1, 3, 5, 7) for power in range(17)} - {5, 7, 10, 14, 3 << 16}))


@dataclass(frozen=True)
class Device:
    """Rates of eager operators. `features` and `space` multiply a composition's base sizes."""

    name: str
    cores: int
    bytes_per_s: float
    matrix_flops: float
    convolution_flops: float
    launch_s: float
    aim_ms: float
    memory_bytes: int
    features: int
    space: int


DEVICES: Final = {
    "cpu": Device("cpu", 2, 10e9, 70e9, 50e9, 10e-6, 7.0, 128 << 20, 1, 1),
    "cuda": Device("h200", 0, 3.6e12, 40e12, 20e12, 8e-6, 3.0, 12 << 30, 4, 2),
}


@dataclass(frozen=True)
class Sized:
    """A composition with sizes, and what the model says about it. Bytes are of all values in float32."""

    composition: Composition
    batch: int
    estimate_ms: float
    value_bytes: int

    @property
    def values(self) -> list[Shape]:
        return self.composition.values(self.batch)


def size(composition: Composition, device: Device, *, factor: float = 1.0) -> Sized | None:
    """Sizes for which eager takes about `device.aim_ms * factor`; None where no batch does."""
    aim = device.aim_ms * factor
    for grown in _sizes(composition, device):
        if not _fits(grown):
            continue
        one = estimate_ms(grown, 1, device)
        if one > 3 * aim:
            continue
        batch = next((batch for batch in NICE if estimate_ms(grown, batch, device) >= 0.75 * aim), NICE[-1])
        weights = _weight_bytes(grown)
        total = _bytes(grown, batch)
        while total + weights > device.memory_bytes and batch > 1:
            batch = NICE[NICE.index(batch) - 1]
            total = _bytes(grown, batch)
        found = estimate_ms(grown, batch, device)
        if total + weights <= device.memory_bytes and found > 0.25 * aim:
            return Sized(grown, batch, round(found, 3), total)
    return None


def _sizes(composition: Composition, device: Device) -> Iterator[Composition]:
    """From large to small. For the smallest every size is the base's or half of it."""
    features, space = float(device.features), float(device.space)
    while features >= 0.25:
        yield _scaled(composition, features, space)
        if space > 1:
            space /= 2
        else:
            features /= 2


def _scaled(composition: Composition, features: float, space: float) -> Composition:
    def times(value: int, factor: float) -> int:
        return max(1, int(value * factor))

    head, *rest = composition.base
    base = (times(head, features), *(times(value, space) for value in rest))
    if composition.rank == 3:  # rows and features
        base = (times(head, space), times(rest[0], features))
    nodes = tuple(
        replace(
            node,
            picks={
                name: times(value, features) if node.operator.picks[name] == "features" else value
                for name, value in node.picks.items()
            },
        )
        for node in composition.nodes
    )
    return replace(composition, base=base, nodes=nodes)


def _fits(composition: Composition) -> bool:
    values = composition.values(2)
    return all(shapes.fits(node.operator, values[node.first], node.picks) for node in composition.nodes)


def estimate_ms(composition: Composition, batch: int, device: Device) -> float:
    """Eager time of one forward."""
    values = composition.values(batch)
    total = 0.0
    for number, node in enumerate(composition.nodes):
        given, made = values[node.first], values[number + 1]
        flops = shapes.flops(node.operator, given, node.picks)
        convolution = node.operator.family == "convolution"
        total += device.launch_s + flops / (device.convolution_flops if convolution else device.matrix_flops)
        moved = math.prod(given) * node.operator.operands + math.prod(made)
        total += moved * ITEM_BYTES / device.bytes_per_s
        if device.cores:
            total += math.prod(given) * node.operator.cpu_ns * 1e-9 / device.cores
    return total * 1e3


def estimate_flops(sized: Sized) -> int:
    """Multiplications and additions of the matrix products inside, by the rules of shapes.py."""
    values = sized.values
    return round(sum(shapes.flops(node.operator, values[node.first], node.picks) for node in sized.composition.nodes))


def least_bytes(sized: Sized) -> int:
    """What has to move: inputs in, output out; weights are small beside them and left out."""
    values = sized.values
    inputs = [values[0], *(values[number] for number in sized.composition.extra_inputs)]
    return ITEM_BYTES * sum(math.prod(shape) for shape in (*inputs, values[-1]))


def _bytes(composition: Composition, batch: int) -> int:
    return ITEM_BYTES * sum(math.prod(shape) for shape in composition.values(batch))


def _weight_bytes(composition: Composition) -> int:
    """Of products with weights, about: each weight is multiplied once for each row. 0.5 GB in a bilinear layer."""
    values = composition.values(1)
    elements = 0.0
    for node in composition.nodes:
        given = values[node.first]
        if node.operator.weights and node.operator.family != "convolution":
            elements += shapes.flops(node.operator, given, node.picks) / 2 / max(1, math.prod(given[:-1]))
    return round(ITEM_BYTES * elements)

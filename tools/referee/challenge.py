"""One challenge: a batch of fresh inputs goes into a stopped worker, the worker runs it, and its outputs are read
while it is stopped.

Covers: work before the clock (the content of inputs appears only when the clock starts), work after it (a stopped
process computes nothing; the clock ends when all threads are stopped), forged replies (addresses and layouts are data;
what counts is the memory).
"""

import array
import itertools
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch

from referee import memory, protocol, seal, stores, tree
from referee.arena import Arena
from referee.launch import Look, Nursery, Window, Worker
from referee.outcome import Rejected, Unjudgeable

MAX_DIMENSIONS: Final = 64
MAX_SIZE: Final = 1 << 48
MAX_OUTPUT_BYTES: Final = 8 << 30
POISONS: Final = (0x80, 0x01, 0xB4)  # malloc fills with the complement: 3.4e38, -1.7e38, 1.3e7 as float32
PREPARE_LIMIT_S: Final = 60.0
OVERWRITTEN: Final = 0xA5


Spans = list[tuple[int, int]]  # first address and the one behind the last


@dataclass(frozen=True)
class Batch:
    """Inputs of `count` calls: specs (one where all are alike) and their bytes in an arena of the reference worker."""

    specs: list[tree.Spec]
    count: int
    arena: Arena

    def spec(self, index: int) -> tree.Spec:
        return self.specs[0] if len(self.specs) == 1 else self.specs[index]

    def leaves(self, index: int) -> list[tuple[int, tree.Spec]]:
        """(place in the arena, layout) of every tensor of one item."""
        if len(self.specs) == 1:
            layouts = tree.tensors_of(self.specs[0])
            return [(index * len(layouts) + at, layout) for at, layout in enumerate(layouts)]
        before = sum(len(tree.tensors_of(spec)) for spec in self.specs[:index])
        return [(before + at, layout) for at, layout in enumerate(tree.tensors_of(self.specs[index]))]

    def first(self, count: int) -> "Batch":
        """Only the first items; the bytes are shared."""
        return Batch(specs=self.specs[:count], count=count, arena=self.arena)

    def bytes_per_item(self) -> int:
        return sum(layout["bytes"] for layout in tree.tensors_of(self.specs[0]))


@dataclass(frozen=True)
class State:
    """A state_dict: names, layouts, and the bytes in an arena."""

    entries: list[tuple[str, tree.Spec]]
    arena: Arena

    def total_bytes(self) -> int:
        return sum(layout["bytes"] for _, layout in self.entries)


@dataclass(frozen=True)
class Answer:
    """What a worker says after a batch: addresses of all output tensors, the layout of the first output, operators
    seen.
    """

    window: Window
    pointers: list[int]
    spec: tree.Spec
    names: list[str]
    placed: list[int]
    kernels: list[tuple[str, int, float]]  # on a GPU, of a watched batch: name, calls, microseconds

    def per_item(self) -> int:
        return len(tree.tensors_of(self.spec))


def draw(oracle: Worker, *, seeds: list[int], scale: float = 1.0, timeout_s: float) -> Batch:
    reply = oracle.call("inputs", seeds=seeds, scale=scale, timeout_s=timeout_s)
    fields = reply.fields
    arena = Arena.received(oracle, reply)
    return Batch(specs=fields["specs"], count=fields["count"], arena=arena)


def draw_weights(oracle: Worker, *, mode: str, seed: int, timeout_s: float) -> State:
    reply = oracle.call("weights", mode=mode, seed=seed, timeout_s=timeout_s)
    arena = Arena.received(oracle, reply)
    return State(entries=[(name, layout) for name, layout in reply.fields["state"]], arena=arena)


def load_weights(worker: Worker, state: State, *, timeout_s: float) -> None:
    """Through load_state_dict."""
    reply = worker.call("room_for_weights", state=state.entries, timeout_s=PREPARE_LIMIT_S)
    worker.store.learn(reply.fields.get("segments"), complete=True)
    pointers = _pointers(reply.blob, len(state.entries))
    for index, (pointer, (_, layout)) in enumerate(zip(pointers, state.entries, strict=True)):
        worker.store.write(pointer, state.arena.part(index, count=layout["bytes"]))
    worker.store.flush()
    worker.call("take_weights", timeout_s=timeout_s)


def place(
    worker: Worker,
    batch: Batch,
    *,
    perturb: int,
    weights: State | None = None,
    outputs: tree.Spec | None = None,
    at_rest: Callable[[Spans], None] | None = None,
) -> list[int]:
    """Room in the worker, then the content while it is stopped. `weights` are written into its parameters in the
    same way. Device memory for `outputs` of this layout is claimed, filled with the pattern and given back first.
    `at_rest` is called before any content is written, with the places where it will be.
    """
    reply = worker.call(
        "prepare",
        specs=batch.specs,
        count=batch.count,
        perturb=perturb,
        pad=1 + int.from_bytes(os.urandom(2)) % 512,
        room=[layout["bytes"] for layout in tree.tensors_of(outputs)] if outputs else [],
        timeout_s=PREPARE_LIMIT_S,
    )
    worker.store.learn(reply.fields.get("segments"), complete=True)
    total = sum(len(batch.leaves(index)) for index in range(batch.count))
    pointers = _pointers(reply.blob, total)
    targets = [] if weights is None else _where_weights(worker, weights)
    # Nothing of the worker runs from here on: only now does content appear.
    worker.check_alone()
    if at_rest is not None:
        sizes = [layout["bytes"] for index in range(batch.count) for _, layout in batch.leaves(index)]
        written = [*zip(pointers, sizes, strict=True), *((pointer, layout["bytes"]) for pointer, layout in targets)]
        at_rest([(low, low + count) for low, count in written])
    if weights is not None:
        _write_in_place(worker, weights, targets)
    at = 0
    for index in range(batch.count):
        for place_in_arena, layout in batch.leaves(index):
            worker.store.write(pointers[at], batch.arena.part(place_in_arena, count=layout["bytes"]))
            at += 1
    worker.store.flush()
    return pointers


def _where_weights(worker: Worker, state: State) -> list[tuple[int, tree.Spec]]:
    """Address and layout of every entry that has bytes, in order."""
    names = [name for name, layout in state.entries if layout["bytes"]]
    if not names:
        return []
    reply = worker.call("where_weights", names=names, timeout_s=PREPARE_LIMIT_S)
    worker.store.learn(reply.fields.get("segments"), complete=True)
    pointers = _pointers(reply.blob, len(names))
    layouts = [checked_layout(layout) for layout in reply.fields["layouts"]]
    return list(zip(pointers, layouts, strict=True))


def _write_in_place(worker: Worker, state: State, targets: list[tuple[int, tree.Spec]]) -> None:
    filled = [(index, layout) for index, (_, layout) in enumerate(state.entries) if layout["bytes"]]
    for (index, layout), (pointer, theirs) in zip(filled, targets, strict=True):
        if (theirs["dtype"], theirs["shape"]) != (layout["dtype"], layout["shape"]):
            raise Rejected("load.state_dict", "a parameter changed its dtype or shape after it was loaded")
        data = state.arena.part(index, count=layout["bytes"])
        if theirs["stride"] != layout["stride"]:
            data = torch.zeros(theirs["bytes"], dtype=torch.uint8, device=data.device)
            tree.view_as(data, theirs).copy_(state.arena.tensor(index, layout=layout))
        worker.store.write(pointer, data)


def run(
    worker: Worker,
    batch: Batch,
    placed: list[int],
    *,
    timeout_s: float,
    log: bool = False,
    look: Look | None = None,
) -> Answer:
    """Release the batch and take the answer apart; the worker is stopped afterwards.

    What is wrong with a trusted worker's answer is wrong with the task.
    """
    try:
        return _run(worker, batch, placed, timeout_s=timeout_s, log=log, look=look)
    except (Rejected, memory.Unreadable) as error:
        if worker.hostile:
            raise
        raise Unjudgeable("task.outputs", f"{worker.name}: {error}") from error


def _run(worker: Worker, batch: Batch, placed: list[int], *, timeout_s: float, log: bool, look: Look | None) -> Answer:
    nonce = os.urandom(16).hex()
    taker = _seal_taker(worker.store, batch.count) if isinstance(worker.store, stores.DeviceMemory) else None
    window = worker.window(nonce=nonce, log=log, timeout_s=timeout_s, seal=taker, look=look)
    fields = window.reply.fields
    if fields.get("nonce") != nonce:
        raise Rejected("tamper.protocol", "the answer does not belong to this batch")
    spec = checked_spec(fields.get("spec"))
    count = len(tree.tensors_of(spec)) * batch.count
    names = fields.get("names") or []
    if fields.get("exact") is not True or fields.get("bare") is not True:
        raise Rejected(
            "tamper.tensor_subclass",
            "forward returned a subclass of torch.Tensor or a tensor that carries attributes of its own",
        )
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Rejected("tamper.protocol", "the operator log is not a list of names")
    return Answer(
        window=window,
        pointers=_pointers(window.reply.blob, count),
        spec=spec,
        names=names,
        placed=placed,
        kernels=_checked_kernels(fields.get("kernels")),
    )


def _checked_kernels(kernels: Any) -> list[tuple[str, int, float]]:
    found = []
    for entry in kernels if isinstance(kernels, list) else []:
        match entry:
            case [str(name), int(calls), int() | float() as us]:
                found.append((name, calls, float(us)))
            case _:
                raise Rejected("tamper.protocol", "the kernel log is not a list of kernels")
    return found


def empty_window(worker: Worker) -> Window:
    """What the protocol itself takes: a trusted worker that fills a few bytes instead of running a batch."""
    nonce = os.urandom(16).hex()
    taker = _seal_taker(worker.store, 1) if isinstance(worker.store, stores.DeviceMemory) else None
    return worker.window(nonce=nonce, log=False, idle=True, timeout_s=PREPARE_LIMIT_S, seal=taker)


def _seal_taker(store: stores.DeviceMemory, items: int) -> Callable[[protocol.Received], seal.Seal]:
    lots = seal.Lots()

    def take(reply: protocol.Received) -> seal.Seal:
        store.learn(reply.fields.get("segments"))
        sizes = [layout["bytes"] for layout in tree.tensors_of(checked_spec(reply.fields.get("spec")))]
        _check_device(reply)
        try:
            return seal.take(store, lots, _pointers(reply.blob, len(sizes) * items), sizes)
        except memory.Unreadable as error:
            raise _not_on_device(error) from error

    return take


def _check_device(reply: protocol.Received) -> None:
    """An output on the CPU is worth a word of its own; that the worker says so is enough to believe it."""
    devices = reply.fields.get("devices")
    if devices != ["cuda"] and isinstance(devices, list) and devices:
        raise Rejected("numeric.device", f"forward returned a tensor on {devices[0]}; the inputs are on the GPU")


def check_seal(worker: Worker, answer: Answer) -> None:
    """After the outputs were read: nothing was written since the clock ended (device memory only)."""
    if not isinstance(worker.store, stores.DeviceMemory):
        return
    if seal.broken(worker.store, answer.window.sealed):
        raise Rejected(
            "timing.unfinished",
            "outputs were written after the call had returned and the GPU had been waited for: join all streams "
            "and threads before forward returns",
        )


def overwrite_outputs(worker: Worker, answer: Answer) -> None:
    """What a trusted worker computed must not lie in device memory while a submission runs (handles can be guessed)."""
    if not isinstance(worker.store, stores.DeviceMemory):
        return
    sizes = [layout["bytes"] for layout in tree.tensors_of(answer.spec)]
    for at, pointer in enumerate(answer.pointers):
        if sizes[at % len(sizes)]:
            worker.store.part(pointer, sizes[at % len(sizes)]).fill_(OVERWRITTEN)
    worker.store.flush()


@contextmanager
def still(worker: Worker) -> Iterator[None]:
    """Around every read: no thread of the worker has run since it was stopped at the end of the clock."""
    yield
    worker.check_stayed()


def sweep(nursery: Nursery, *, trusted: list[Worker]) -> None:
    found = nursery.sweep(trusted=trusted)
    if found:
        raise Rejected("tamper.process", f"{len(found)} process(es) were left running beside the submission's own")


def read_outputs(worker: Worker, answer: Answer, index: int) -> list[torch.Tensor]:
    """One item's output tensors, in the layout of the first item's."""
    layouts = tree.tensors_of(answer.spec)
    found = []
    for at, layout in enumerate(layouts):
        try:
            pointer = answer.pointers[index * len(layouts) + at]
            raw = worker.store.read(pointer, layout["bytes"])
        except memory.Unreadable as error:
            raise _no_memory(worker, error) from error
        found.append(tree.view_as(raw, layout))
    return found


def input_changed(worker: Worker, batch: Batch, answer: Answer, index: int) -> list[bool]:
    """For every input tensor of an item whether its bytes differ from what was written."""
    first = (
        sum(len(batch.leaves(before)) for before in range(index))
        if len(batch.specs) > 1
        else index * len(batch.leaves(0))
    )
    changed = []
    for at, (place_in_arena, layout) in enumerate(batch.leaves(index)):
        now = worker.store.read(answer.placed[first + at], layout["bytes"])
        changed.append(not torch.equal(now, batch.arena.part(place_in_arena, count=layout["bytes"])))
    return changed


def _no_memory(worker: Worker, error: memory.Unreadable) -> Rejected | Unjudgeable:
    if not worker.hostile:
        return Unjudgeable("task.outputs", f"{worker.name}: {error}")
    if isinstance(worker.store, stores.DeviceMemory):
        return _not_on_device(error)
    return Rejected("tamper.tensor_subclass", f"an output tensor has no memory behind it: {error}")


def _not_on_device(error: memory.Unreadable) -> Rejected:
    return Rejected(
        "numeric.device",
        "an output lies in no device memory that torch has allocated: return tensors made by torch.empty and its like "
        f"on the inputs' device ({error})",
    )


def overlaps_inputs(batch: Batch, answer: Answer) -> bool:
    """Whether any output lies inside any input of the batch."""
    spans = []
    at = 0
    for index in range(batch.count):
        for _, layout in batch.leaves(index):
            spans.append((answer.placed[at], answer.placed[at] + layout["bytes"]))
            at += 1
    return _overlap(_output_spans(answer), spans)


def shared_outputs(answer: Answer) -> bool:
    """Whether outputs of different calls share memory."""
    spans = sorted(_output_spans(answer))
    return any(before[1] > after[0] for before, after in itertools.pairwise(spans))


def _output_spans(answer: Answer) -> list[tuple[int, int]]:
    layouts = tree.tensors_of(answer.spec)
    per_item = max(len(layouts), 1)
    spans = []
    for at in range(0, len(answer.pointers), per_item):
        item = [
            (pointer, pointer + layout["bytes"])
            for pointer, layout in zip(answer.pointers[at : at + per_item], layouts, strict=True)
            if layout["bytes"]
        ]
        # Several outputs of one call may be views of one buffer; of different calls they may not.
        spans += _merged(sorted(item))
    return spans


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for low, high in spans:
        if merged and low < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


def _overlap(ones: list[tuple[int, int]], others: list[tuple[int, int]]) -> bool:
    events = sorted([(low, high, 0) for low, high in ones] + [(low, high, 1) for low, high in others if high > low])
    reach = [0, 0]
    for low, high, side in events:
        if low < reach[1 - side]:
            return True
        reach[side] = max(reach[side], high)
    return False


def _pointers(blob: bytes, count: int) -> list[int]:
    if len(blob) != 8 * count:
        raise Rejected("tamper.protocol", f"{len(blob) // 8} addresses where {count} were asked for")
    return array.array("Q", blob).tolist()


def checked_layout(layout: Any) -> tree.Spec:
    """A layout from a worker, with the span computed here."""
    name = layout.get("dtype") if isinstance(layout, dict) else None
    if not isinstance(name, str) or name not in tree.DTYPES:
        raise Rejected("tamper.protocol", "an output's layout names no known dtype")
    shape, stride = _sizes(layout.get("shape")), _sizes(layout.get("stride"))
    if len(shape) != len(stride) or math.prod(shape) > MAX_OUTPUT_BYTES:
        raise Rejected("tamper.protocol", "an output's shape and stride do not belong together")
    count = tree.span_bytes(shape, stride, tree.DTYPES[name].itemsize)
    if count > MAX_OUTPUT_BYTES:
        raise Rejected("numeric.shape", "an output spans more than 8 GiB of memory")
    return {"k": "tensor", "dtype": name, "shape": shape, "stride": stride, "bytes": count}


def _sizes(numbers: Any) -> list[int]:
    if (
        not isinstance(numbers, list)
        or len(numbers) > MAX_DIMENSIONS
        or not all(type(number) is int and 0 <= number < MAX_SIZE for number in numbers)
    ):
        raise Rejected("tamper.protocol", "an output's shape or stride is no list of sizes")
    return numbers


def checked_spec(spec: Any, depth: int = 0) -> tree.Spec:
    """A spec from a worker, rebuilt from what is understood of it."""
    if not isinstance(spec, dict) or depth > tree.MAX_DEPTH:
        raise Rejected("tamper.protocol", "the output's description is not understood")
    kind = spec.get("k")
    if kind == "tensor":
        return checked_layout(spec)
    items = spec.get("items")
    if kind in ("tuple", "list") and isinstance(items, list):
        return {"k": kind, "items": [checked_spec(item, depth + 1) for item in items]}
    if kind == "dict" and isinstance(items, list) and all(isinstance(item, list) and len(item) == 2 for item in items):
        if not all(isinstance(key, (str, int)) for key, _ in items):
            raise Rejected("tamper.protocol", "the output's description is not understood")
        return {"k": "dict", "items": [[key, checked_spec(item, depth + 1)] for key, item in items]}
    if kind in ("plain", "int", "float", "complex", "dtype", "device"):
        return {"k": kind, "v": spec.get("v")}
    raise Rejected("tamper.protocol", "the output's description is not understood")

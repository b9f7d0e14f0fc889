"""Torch's global precision flags, read from a stopped worker's memory: nothing in the worker is asked.

They lie in one object of torch (at::Context) and in the nodes of a table that hangs on it. The template, before any
worker exists, finds out which bytes follow which flag; workers are forked from it, so the addresses are theirs too.
The referee reads these bytes whenever a worker is stopped, also in the middle of a batch.

Covers: flags set from any language or thread, at load or inside forward. Does not cover: what is set and set back
between two looks; flags that choose an algorithm and no precision (determinism, cuDNN's benchmark, SDPA's kernels);
number formats that a kernel of the submission's own chooses, which are its error's matter.
"""

import ctypes
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Final

OBJECT: Final = 2048  # bytes looked at from the object's start; it has some hundred
NODE: Final = 40
MOST_NODES: Final = 64
WORD: Final = struct.Struct("<Q")
LOGGED: Final = "flag::"  # in the log of operators: a flag that was changed when one of them ran
LEAVE_THEM: Final = "torch's global precision flags are the judge's, the same on both sides: leave them as they are"
GLOBAL_CONTEXT: Final = "_ZN2at13globalContextEv"

Snapshot = dict[int, int]
Span = tuple[int, int]  # first address, bytes


@dataclass(frozen=True)
class Place:
    """One byte and what its values mean. Two values of one meaning are no change: without a value of its own a backend
    computes in IEEE float32 unless a flag above it says otherwise, and that one has a place as well.
    """

    name: str
    at: int
    meanings: dict[str, str]

    def told(self, value: int) -> str:
        return self.meanings.get(str(value), f"another value ({value})")


def places_from(found: Any) -> tuple[Place, ...]:
    return tuple(Place(*entry) for entry in found)


def read(memory: int, places: tuple[Place, ...]) -> dict[str, str]:
    """Meaning of every flag now; `memory` is an open /proc/PID/mem."""
    return {place.name: place.told(os.pread(memory, 1, place.at)[0]) for place in places}


def changes(before: dict[str, str], now: dict[str, str]) -> str:
    """Those that differ, in words; empty where none does."""
    return ", ".join(
        f"{name} is {value}, the judge set {before[name]}" for name, value in now.items() if value != before[name]
    )


Setting = tuple[str, Callable[[], Any], Callable[[Any], Any], dict[Any, str]]  # name, get, set, meanings of values


def find() -> list[tuple[str, int, dict[str, str]]]:
    """Places of all flags that this torch has; none where its object cannot be found. For one thread, before workers
    and submissions exist; every flag is left as it was.
    """
    memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        start = _context()
        spans = [] if start is None else [(start, OBJECT), *_nodes(memory, start)]
        return _found(memory, spans)
    finally:
        os.close(memory)


def _found(memory: int, spans: list[Span]) -> list[tuple[str, int, dict[str, str]]]:
    found: dict[int, tuple[str, int, dict[str, str]]] = {}
    for name, get, put, values in settings():
        with suppress(AttributeError, RuntimeError):
            before = get()
            try:
                answers = _followers(memory, spans, put, list(values))
            finally:
                put(before)
            for at, codes in answers.items():
                meanings = {str(code): values[value] for value, code in codes.items()}
                found.setdefault(at, (name, at, meanings))  # one flag's setter may write others, found before it
    return list(found.values())


def settings() -> Iterator[Setting]:
    """Flags that decide in which precision torch's own operators compute."""
    import torch

    get, put = torch._C._get_fp32_precision_getter, torch._C._set_fp32_precision_setter
    for backend, operations in (
        ("generic", ("all",)),
        ("cuda", ("all", "matmul", "conv", "rnn")),
        ("mkldnn", ("all", "matmul", "conv", "rnn")),
    ):
        own = {"none": "ieee", "ieee": "ieee", "tf32": "tf32"}
        if backend == "mkldnn" or operations == ("all",):
            own["bf16"] = "bf16"
        for operation in operations:
            yield (
                f"fp32_precision of {backend} {operation}",
                partial(get, backend, operation),
                partial(put, backend, operation),
                own,
            )
    three = {"highest": "highest", "high": "high", "medium": "medium"}
    yield "float32_matmul_precision", *_pair("float32_matmul_precision"), three
    yesno = {False: "False", True: "True"}
    for name in ("cudnn_allow_tf32", "cublas_allow_fp16_accumulation", "cpu_allow_fp16_reduced_precision_reduction",
                 "math_sdp_allow_fp16_bf16_reduction"):  # fmt: skip
        if hasattr(torch._C, f"_set_{name}"):
            yield name, *_pair(name), yesno
    for name in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"):
        # The setter below has other arguments in other versions of torch.
        get_own, _ = _pair(f"cublas_{name}")
        yield f"cublas_{name}", get_own, partial(setattr, torch.backends.cuda.matmul, name), yesno


def _pair(name: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    import torch

    return getattr(torch._C, f"_get_{name}"), getattr(torch._C, f"_set_{name}")


class Watch:
    """Inside a worker, by torch's own getters, taken before a submission is loaded: which flags change between its
    making and a look. Weaker than `read`, but it can look at every operator.
    """

    _settings: ClassVar[list[Setting]] = []

    def __init__(self) -> None:
        self.changed: set[str] = set()
        self._before = self._read()

    @classmethod
    def arm(cls) -> None:
        cls._settings[:] = settings()

    def look(self) -> None:
        for name, value in self._read().items():
            before = self._before.get(name, value)
            if value != before:
                self.changed.add(f"{name} is {value}, before it was {before}")

    def _read(self) -> dict[str, str]:
        found = {}
        for name, get, _, values in self._settings:
            with suppress(RuntimeError):  # a mixture of flags that this getter cannot tell
                value = get()
                found[name] = values.get(value, str(value))
        return found


def _context() -> int | None:
    """Address of torch's global state; None where no library has it under this name."""
    function = getattr(ctypes.CDLL(None), GLOBAL_CONTEXT, None) or _from_torch()
    if function is None:
        return None
    function.restype, function.argtypes = ctypes.c_void_p, ()
    address: int | None = function()
    return address


def _from_torch() -> Any:
    import torch

    return getattr(ctypes.CDLL(torch._C.__file__), GLOBAL_CONTEXT, None)


def _nodes(memory: int, start: int) -> list[Span]:
    """Nodes of the hash tables in the object: a first node, and how many there are (libstdc++)."""
    data = os.pread(memory, OBJECT, start)
    words = [WORD.unpack_from(data, at)[0] for at in range(0, len(data) - WORD.size + 1, WORD.size)]
    found: list[Span] = []
    for first, count in pairwise(words):
        if first and 0 < count <= MOST_NODES:
            found += _chain(memory, first, count)
    return found


def _chain(memory: int, node: int, count: int) -> list[Span]:
    """The nodes, where exactly so many follow one another."""
    found: list[Span] = []
    with suppress(OSError, OverflowError, struct.error):
        while node and len(found) <= count:
            found.append((node, NODE))
            node = WORD.unpack(os.pread(memory, WORD.size, node))[0]
        if len(found) == count:
            return found
    return []


def _followers(
    memory: int, spans: list[Span], put: Callable[[Any], Any], values: list[Any]
) -> dict[int, dict[Any, int]]:
    """Bytes that have a value of their own for every value of a flag, the same one each time."""
    rounds: list[dict[Any, Snapshot]] = []
    for _ in range(2):
        seen = {}
        for value in values:
            put(value)
            seen[value] = _snapshot(memory, spans)
        rounds.append(seen)
    once, twice = rounds
    found = {}
    for at in once[values[0]]:
        codes = {value: once[value].get(at, -1) for value in values}
        steady = all(twice[value].get(at, -1) == code for value, code in codes.items())
        if steady and len(set(codes.values())) == len(values):
            found[at] = codes
    return found


def _snapshot(memory: int, spans: list[Span]) -> Snapshot:
    return {start + at: byte for start, size in spans for at, byte in enumerate(os.pread(memory, size, start))}

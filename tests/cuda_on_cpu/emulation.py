"""Compiles CUDA sources with g++ against the emulator's headers, and calls their launchers on CPU tensors.

Covers results, accesses outside of tensors (pages around them are forbidden), writes to inputs, barriers and warp
functions that not all threads reach, configurations that CUDA refuses, and results that depend on the order of threads
or blocks.
Does not cover time, nvcc's own complaints, or rounding of CUDA's mathematical functions.
"""

import ctypes
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

HERE: Final = Path(__file__).resolve().parent
LAUNCHER: Final = HERE.parents[1] / "tools" / "binding" / "launcher.h"
FLAGS: Final = (
    "-O1", "-std=c++17", "-shared", "-fPIC", "-w", "-fno-strict-aliasing", "-ffp-contract=fast", "-march=native",
)  # fmt: skip
_DYNAMIC: Final = re.compile(r"extern\s+__shared__\s+([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;")
ROOM: Final = 400
ELEMENTS: Final = {
    torch.float32: 1, torch.float64: 2, torch.float16: 3, torch.bfloat16: 4, torch.bool: 5, torch.uint8: 6,
    torch.int8: 7, torch.int16: 8, torch.int32: 9, torch.int64: 10,
}  # fmt: skip


class Fault(Exception):
    """What the emulator has found, or an error code of the launcher."""


def rewritten(text: str) -> str:
    """Launches become calls: kernel<<<grid, block>>>(x) is emu::Launch(grid, block).run("kernel", kernel, x)."""
    text = _DYNAMIC.sub(r"\1* \2 = static_cast<\1*>(::emu::dynamic_shared());", text)
    while (at := text.find("<<<")) >= 0:
        begin = _name_before(text, at)
        end = text.index(">>>", at)
        name, configuration = text[begin:at].strip(), text[at + 3 : end]
        opened = text.index("(", end)
        comma = "" if re.match(r"\(\s*\)", text[opened:]) else ", "
        head = f'::emu::Launch({configuration}).run("{name}", {name}{comma}'
        text = text[:begin] + head + text[opened + 1 :]
    return text


def _name_before(text: str, at: int) -> int:
    """Where the kernel's name begins, template arguments included."""
    depth = 0
    while at > 0:
        char = text[at - 1]
        depth += (char == ">") - (char == "<")
        if not depth and not (char.isalnum() or char in "_:<"):
            return at
        at -= 1
    return at


class Library:
    """The launchers of some sources. Raises Fault where they do not compile."""

    def __init__(self, files: Mapping[str, str], folder: Path) -> None:
        self.sources = [self._write(folder, name, text) for name, text in files.items()]
        (folder / "launcher.h").write_text(LAUNCHER.read_text())
        library = folder / "emulated.so"
        # launcher.h first: the emulator's own functions speak of it.
        argv = ["g++", *FLAGS, "-include", str(folder / "launcher.h"), f"-I{HERE / 'include'}", "-x", "c++"]
        argv += [str(path) for path in self.sources if path.suffix == ".cu"]
        done = subprocess.run([*argv, "-o", str(library)], capture_output=True, text=True)
        if done.returncode:
            raise Fault(done.stderr[:3000])
        self._library = ctypes.CDLL(str(library))
        self._library.emu_memory.restype = ctypes.c_void_p

    def _write(self, folder: Path, name: str, text: str) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(rewritten(text))
        return path

    def call(self, name: str, *arguments: Any, seed: int = 0, at_end: bool = True) -> None:
        """Runs a launcher; tensors are copied into guarded memory and, where they are written, back. Raises Fault."""
        encoded = name.encode()
        kinds = self._kinds(encoded)
        values = (ctypes.c_int64 * len(kinds))()
        sizes = (ctypes.c_size_t * len(kinds))()
        rest = list(arguments)
        held: list[tuple[torch.Tensor, int, int, bool]] = []
        for k, (kind, element, written) in enumerate(kinds):
            if kind == 3:
                continue
            argument = rest.pop(0)
            if kind == 0 and isinstance(argument, torch.Tensor):
                if element and ELEMENTS[argument.dtype] != element:
                    raise Fault(f"{name}: argument {k + 1} is {argument.dtype}")
                size = _reach(argument)
                address = self._library.emu_memory(ctypes.c_size_t(size), int(at_end))
                _copy(address, argument, size, into=True)
                held.append((argument, address, size, written))
                values[k], sizes[k] = address, size
            elif kind == 1:
                values[k] = argument
            elif kind == 2:
                values[k] = ctypes.c_int64.from_buffer(ctypes.c_double(argument)).value
        if rest:
            raise Fault(f"{name}: {len(rest)} arguments too many")
        said = ctypes.create_string_buffer(ROOM)
        count = ctypes.c_size_t(len(kinds))
        code = self._library.emu_call(encoded, values, sizes, count, ctypes.c_uint64(seed), said, ctypes.c_size_t(ROOM))
        for argument, address, size, written in held:
            if written and not code:
                _copy(address, argument, size, into=False)
            self._library.emu_free(ctypes.c_void_p(address), ctypes.c_size_t(size))
        if code:
            raise Fault(f"{name}: code {code} {said.value.decode(errors='replace')}")

    def _kinds(self, name: bytes) -> list[tuple[int, int, bool]]:
        found: list[tuple[int, int, bool]] = []
        while (code := self._library.emu_parameter(name, ctypes.c_size_t(len(found)))) >= 0:
            found.append((code // 1000, code % 1000 // 10, bool(code % 10)))
        return found


def _reach(tensor: torch.Tensor) -> int:
    """Bytes from the first element to the last."""
    if not tensor.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def _copy(address: int, tensor: torch.Tensor, size: int, *, into: bool) -> None:
    there = tensor.data_ptr()
    ctypes.memmove(address if into else there, there if into else address, size)


def module(library: Library, *, seed: int = 0, at_end: bool = True) -> Any:
    """An object like the compiled extension: its functions are the launchers."""

    class Extension:
        def __getattr__(self, name: str) -> Any:
            return lambda *arguments: library.call(name, *arguments, seed=seed, at_end=at_end)

    return Extension()

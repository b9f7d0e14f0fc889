"""What ptxas says about each kernel (-Xptxas -v): registers, spills, stack, static shared memory."""

import contextlib
import re
import subprocess
from typing import Any, Final

MAX_KERNELS: Final = 60
NAME_CHARS: Final = 200
_ENTRY: Final = re.compile(r"ptxas info\s*: Compiling entry function '(?P<symbol>[^']+)' for '(?P<arch>\w+)'")
_PROPERTIES: Final = re.compile(r"ptxas info\s*: Function properties for (?P<symbol>\S+)")
_SPILLS: Final = re.compile(r"\s*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED: Final = re.compile(r"ptxas info\s*: Used (?P<registers>\d+) registers(?P<rest>.*)")
_SHARED: Final = re.compile(r"(\d+) bytes smem")
_BARRIERS: Final = re.compile(r"used (\d+) barriers")
_SAID: Final = re.compile(r"ptxas info\s*: |\s*\d+ bytes stack frame, ")


def parse(output: str, *, source: str) -> list[dict[str, Any]]:
    """One entry per kernel in the order of the output, names as the object file has them."""
    found: list[dict[str, Any]] = []
    spills: dict[str, tuple[int, ...]] = {}
    speaks_of = ""
    for line in output.splitlines():
        if match := _ENTRY.match(line):
            found.append(
                {"source": source, "symbol": match["symbol"], "kernel": match["symbol"], "arch": match["arch"]}
            )
        elif match := _PROPERTIES.match(line):
            speaks_of = match["symbol"]
        elif (match := _SPILLS.match(line)) and speaks_of:
            spills[speaks_of] = tuple(int(number) for number in match.groups())
        elif (match := _USED.match(line)) and found and "registers" not in found[-1]:
            found[-1] |= {"registers": int(match["registers"]), **_extras(match["rest"])}
    whole = [entry for entry in found if "registers" in entry]
    for entry in whole:
        numbers = spills.get(entry["symbol"], (0, 0, 0))
        entry |= dict(zip(("stack_bytes", "spill_store_bytes", "spill_load_bytes"), numbers, strict=True))
    return whole[:MAX_KERNELS]


def _extras(rest: str) -> dict[str, int]:
    shared, barriers = _SHARED.search(rest), _BARRIERS.search(rest)
    return {"shared_bytes": int(shared[1]) if shared else 0, "barriers": int(barriers[1]) if barriers else 0}


def without(output: str) -> str:
    """The compiler's output less what `parse` takes out of it."""
    return "".join(line for line in output.splitlines(keepends=True) if not _SAID.match(line))


def demangle(entries: list[dict[str, Any]], *, path: str) -> None:
    """Gives each entry the name that stands in the source, where c++filt is there."""
    symbols = [entry["symbol"] for entry in entries]
    if not symbols:
        return
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["c++filt", *symbols]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True, env={"PATH": path})
        for entry, name in zip(entries, done.stdout.splitlines(), strict=False):
            entry["kernel"] = name[:NAME_CHARS]

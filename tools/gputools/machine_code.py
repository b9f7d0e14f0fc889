"""What a kernel became: instruction counts and an excerpt of its machine code, by cuobjdump."""

import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

from gputools import programs

LIMIT_S: Final = 60.0
EXCERPT_LINES: Final = 60
# Opcode prefix -> what it says; counted where it occurs.
TELLING: Final = {
    "LDG.E.128": "16-byte loads",
    "LDG": "loads from device memory",
    "STG.E.128": "16-byte stores",
    "STG": "stores to device memory",
    "LDS": "loads from shared memory",
    "STS": "stores to shared memory",
    "LDL": "loads from local memory (spills, run-time register indices)",
    "STL": "stores to local memory (spills, run-time register indices)",
    "LDGSTS": "asynchronous copies to shared memory",
    "UBLKCP": "bulk copies",
    "UTMALDG": "tensor copies",
    "HGMMA": "warpgroup matrix products",
    "HMMA": "warp matrix products",
    "FFMA": "fused multiply-adds",
    "MUFU": "special functions (exp, rsqrt, reciprocal)",
    "BAR": "barriers",
    "SHFL": "shuffles",
    "ATOM": "atomics",
    "RED": "reductions in memory",
}
_FUNCTION: Final = re.compile(r"^\s*Function : (?P<name>\S+)")
_INSTRUCTION: Final = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?P<text>.+?)\s*;")
_PREDICATE: Final = re.compile(r"^@!?U?P\w+\s+")
_BACK: Final = re.compile(r"BRA\w*\s.*0x(?P<target>[0-9a-f]+)")


class NoCode(Exception):
    """cuobjdump is missing or found nothing."""


def read(module: Path, *, wanted: str = "") -> list[dict[str, Any]]:
    """Every kernel of a built module whose name contains `wanted`. Raises NoCode."""
    tool = programs.find("cuobjdump")
    if tool is None:
        raise NoCode("cuobjdump is not installed")
    ran = programs.run([tool, "-sass", str(module)], timeout_s=LIMIT_S)
    found = [function for function in parse(ran.out) if wanted in function["symbol"]]
    if not found:
        raise NoCode(f"no kernel named {wanted!r} in {module.name}" if ran.code == 0 else ran.said[-300:])
    return found


def parse(text: str) -> list[dict[str, Any]]:
    """Functions in the order of the dump: counts of telling instructions, and the lines of the innermost loop."""
    functions: list[tuple[str, list[tuple[int, str]]]] = []
    for line in text.splitlines():
        if match := _FUNCTION.match(line):
            functions.append((match["name"], []))
        elif functions and (match := _INSTRUCTION.match(line)):
            functions[-1][1].append((int(line.split("*/")[0].split("/*")[1], 16), match["text"]))
    return [_described(name, lines) for name, lines in functions if lines]


def _described(name: str, lines: list[tuple[int, str]]) -> dict[str, Any]:
    opcodes = Counter(_PREDICATE.sub("", text).split()[0] for _, text in lines)
    counts = {what: sum(n for op, n in opcodes.items() if _is(op, prefix)) for prefix, what in TELLING.items()}
    loop = _innermost_loop(lines)
    return {
        "symbol": name,
        "instructions": len(lines),
        "counts": {what: count for what, count in counts.items() if count},
        "excerpt_of": "innermost loop" if loop else "beginning",
        "excerpt": [text for _, text in (loop or lines)[:EXCERPT_LINES]],
    }


def _is(opcode: str, prefix: str) -> bool:
    """LDG.E.128 also counts where .CONSTANT or the like stands between; LDG does not count LDGSTS."""
    parts, wanted = opcode.split("."), prefix.split(".")
    return parts[0] == wanted[0] and set(wanted[1:]) <= set(parts[1:])


def _innermost_loop(lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """The shortest stretch that a branch jumps back over; the branch to itself at the end of a kernel is none."""
    best: list[tuple[int, str]] = []
    for at, text in lines:
        match = _BACK.search(text)
        if match and int(match["target"], 16) < at:
            body = [line for line in lines if int(match["target"], 16) <= line[0] <= at]
            if not best or len(body) < len(best):
                best = body
    return best

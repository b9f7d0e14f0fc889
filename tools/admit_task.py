"""Says which candidates can be tasks: `python -I admit_task.py --target T` with {"id", "model_py"} lines on stdin.

One report per line on standard output, as candidates end: status admitted or refused (with task.* reasons), flags that
are remarks, and facts (times, bytes, FLOPs, operators). Each candidate runs in a process of its own, forked from one
that has imported torch; the checks stand in admission/examine.py, the judge's controls among them.
"""

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from building import toolchain
from referee import inherited, removal
from referee.launch import HEAP, SPIN

LANES: Final = Path(__file__).resolve().parent / "admission" / "lanes.py"


def main() -> int:
    parser = argparse.ArgumentParser(description="Report which candidates (JSON lines on stdin) can be tasks.")
    parser.add_argument("--target", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--lanes", type=int, default=0, help="candidates at once; default: one per core, 1 for cuda")
    parser.add_argument("--timeout-s", type=float, default=90.0, help="limit for one candidate")
    parser.add_argument("--memory-gb", type=float, default=6.0, help="address space of one candidate, target cpu")
    parser.add_argument("--low-ms", type=float, default=1.0, help="shortest eager time")
    parser.add_argument("--high-ms", type=float, default=100.0, help="longest eager time")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--flagged-uncompiled", action="store_true", help="leave it out for what has been flagged")
    parser.add_argument("--queue", type=Path, help="a file that grows, instead of stdin; its last line has end: true")
    parser.add_argument("--scratch", type=Path, help="folder for torch.compile's cache, kept between calls")
    flags = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    with removal.scratch("admit-") as own:
        scratch = (flags.scratch or own).resolve()
        options = {
            "target": flags.target,
            "lanes": flags.lanes or (cores if flags.target == "cpu" else 1),
            "timeout_s": flags.timeout_s,
            "memory_bytes": int(flags.memory_gb * (1 << 30)),
            "low_ms": flags.low_ms,
            "high_ms": flags.high_ms,
            "compile": not flags.no_compile,
            "flagged_uncompiled": flags.flagged_uncompiled,
            "threads": cores,
            "scratch": str(scratch),
            "queue": str(flags.queue.resolve()) if flags.queue else "",
        }
        return _run(options, scratch)


def _run(options: dict[str, object], scratch: Path) -> int:
    """In a process with the judge's heap settings, which are read when it starts."""
    environment = {
        **_linker(scratch),
        "PATH": toolchain.search_path(),
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "LC_ALL": "C.UTF-8",
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        **HEAP,
        **SPIN,
        **inherited.variables(),
    }
    argv = [sys.executable, "-I", str(LANES), json.dumps(options)]
    return os.spawnve(os.P_WAIT, sys.executable, argv, environment)


def _linker(scratch: Path) -> dict[str, str]:
    """gold links a kernel against libtorch_cpu.so in half of ld's time; where there is none, ld does it."""
    gold = shutil.which("ld.gold", path=toolchain.search_path())
    if gold is None:
        return {}
    folder = scratch / "linker"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "ld").is_symlink():
        (folder / "ld").symlink_to(gold)
    return {"COMPILER_PATH": str(folder)}


if __name__ == "__main__":
    sys.exit(main())

"""Checks the sandbox that it runs in: `python -I self_test.py --target cpu|cuda`; one JSON object on stdout.

Covered: whether what a submission needs is there (compiler, torch, a place to execute from; target cuda: each layer
from the driver to the profilers), and whether what it must not have is absent (network, root); how long each took.
Layers run side by side. Not covered: whether a hostile program could get out; the sandboxes' tests try that.
"""

import argparse
import ctypes
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gputools import programs, self_checks

# TEST-NET-1 of RFC 5737: no machine answers there, so a refusal shows that there is no route, not that nobody is home.
UNROUTED: Final = ("192.0.2.1", 53)
WALLS: Final = Path(__file__).resolve().parent / "referee" / "walls.py"
LAYERS: Final = Path(__file__).resolve().parent / "gputools" / "torch_layers.py"
# A CPU's first torch.compile builds a precompiled header, which alone can take half a minute.
PATIENCE_S: Final = {"cpu": 240.0, "cuda": 45.0}
ORDER: Final = (
    "no network", "user", "walls", "executable /tmp", "g++", "driver", "nvcc", "kernel launch", "torch",
    "torch on the GPU", "Triton", "torch.compile", "torch.compile on the GPU", "ncu", "compute-sanitizer",
)  # fmt: skip

Outcome = tuple[bool, str]
Result = dict[str, Any]


class Clock:
    """The seconds that all layers together may take."""

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self._until = time.monotonic() + patience_s

    @property
    def left_s(self) -> float:
        return max(0.1, self._until - time.monotonic())


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--target", choices=("cpu", "cuda"), required=True)
    parser.add_argument(
        "--quick", action="store_true", help="leave out what takes seconds: compilers' and profilers' layers"
    )
    parser.add_argument("--patience-s", type=float, default=0.0, help="for all layers together")
    flags = parser.parse_args()
    clock = Clock(flags.patience_s or PATIENCE_S[flags.target])
    began = time.monotonic()
    results = all_results(flags.target, clock, quick=flags.quick)
    status = "ok" if all(result["ok"] for result in results) else "failed"
    seconds = round(time.monotonic() - began, 2)
    report = {"schema_version": 1, "tool": "self_test", "status": status, "checks": results, "seconds": seconds}
    sys.stdout.write(json.dumps(report) + "\n")
    return 0


def all_results(target: str, clock: Clock, *, quick: bool) -> list[Result]:
    """Everything side by side, except what needs another layer's work: one torch for its layers, one probe program."""
    single: dict[str, Callable[[], Outcome]] = {
        "no network": no_network,
        "user": not_root,
        "walls": walls,
        "executable /tmp": executable_tmp,
        "g++": compiles_and_loads,
    }
    groups: list[Callable[[], list[Result]]] = [lambda: torch_layers(target, clock, quick=quick)]
    if target == "cuda":
        single |= {"driver": self_checks.driver, "nvcc": nvcc}
        groups.append(lambda: probe_layers(clock, quick=quick))
    with ThreadPoolExecutor(max_workers=len(single) + len(groups)) as pool:
        ones = [pool.submit(result, name, check) for name, check in single.items()]
        many = [pool.submit(group) for group in groups]
        found = [one.result() for one in ones] + [result for group in many for result in group.result()]
    return sorted(found, key=lambda one: ORDER.index(one["name"]))


def result(name: str, check: Callable[[], Outcome]) -> Result:
    began = time.monotonic()
    try:
        ok, detail = check()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        ok, detail = False, f"{type(error).__name__}: {error}"[:300]
    return {"name": name, "ok": ok, "detail": detail, "seconds": round(time.monotonic() - began, 2)}


def torch_layers(target: str, clock: Clock, *, quick: bool) -> list[Result]:
    """In a process of its own: a crash or a hang there is a failed layer, and not the end of the other checks."""
    command = [sys.executable, "-I", str(LAYERS), "--target", target, *(["--quick"] if quick else [])]
    ran = programs.run(command, timeout_s=clock.left_s)
    said = [json.loads(line) for line in ran.out.splitlines() if line.startswith("{")]
    found = [line for line in said if "name" in line]
    begun = [line["begun"] for line in said if "begun" in line] or ["torch"]
    if len(found) < len(begun) or not said:
        how = f"did not end within {clock.patience_s:.0f} s" if ran.code is None else last_words(ran)
        unfinished = {"name": begun[-1], "ok": False, "detail": how, "seconds": 0.0, "unfinished": ran.code is None}
        found.append(unfinished)
    return found


def last_words(ran: programs.Ran) -> str:
    lines = ran.err.strip().splitlines()
    return f"the process ended with exit code {ran.code}: {lines[-1] if lines else ''}"[:300]


def probe_layers(clock: Clock, *, quick: bool) -> list[Result]:
    """One small program is compiled; it is launched, profiled and checked side by side."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(max_workers=3) as pool:
        began = time.monotonic()
        probe = self_checks.build(Path(folder), timeout_s=clock.left_s)
        built_s = round(time.monotonic() - began, 2)
        checks = {"kernel launch": self_checks.launch}
        if not quick:
            checks |= {"ncu": self_checks.counters, "compute-sanitizer": self_checks.sanitizer}

        def looked_at(name: str) -> Result:
            return result(name, lambda: checks[name](probe, timeout_s=clock.left_s))

        found = list(pool.map(looked_at, checks))
    for one in found:
        one["unfinished"] = not one["ok"] and self_checks.TOO_LONG in one["detail"]
    found[0]["seconds"] = round(found[0]["seconds"] + built_s, 2)
    return found


def no_network() -> Outcome:
    folder = Path("/sys/class/net")
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    others = [name for name in names if name != "lo" and (folder / name / "operstate").read_text().strip() != "down"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(UNROUTED)
        except OSError as error:
            return True, f"no route out ({error.strerror})"
    return False, f"there is a route out of the sandbox (interfaces: {', '.join(others or names)})"


def not_root() -> Outcome:
    """Root of a user namespace is fine: it is an ordinary user outside."""
    uid = os.getuid()
    outside = [
        line.split()[1] for line in Path("/proc/self/uid_map").read_text().splitlines() if line.split()[0] == "0"
    ]
    if uid == 0 and outside == ["0"]:
        return False, "commands run as root"
    return True, f"uid {uid}"


def walls() -> Outcome:
    """Whether a sealed process can open those around the tools, such as `timeout`: they have its uid."""
    said = subprocess.run(
        [sys.executable, "-I", str(WALLS)], capture_output=True, text=True, timeout=20, check=True
    ).stdout
    found = json.loads(said)
    if not found["filtered"]:
        return False, "no system call filter for this machine"
    if found["opened"]:
        return False, f"a submission could open {', '.join(found['opened'])} (Landlock {found['landlock']})"[:300]
    return True, f"system call filter, Landlock {found['landlock']}"


def executable_tmp() -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script"
        script.write_text("#!/bin/sh\necho it runs\n")
        script.chmod(0o755)
        said = subprocess.run([str(script)], capture_output=True, text=True, timeout=20, check=True).stdout.strip()
        free = os.statvfs(folder)
        return said == "it runs", f"{free.f_bavail * free.f_frsize / 1e9:.1f} GB free"


def compiles_and_loads() -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "probe.cpp", Path(folder) / "probe.so"
        source.write_text('#include <omp.h>\nextern "C" int answer() { return omp_get_max_threads() > 0 ? 42 : 0; }\n')
        command = ["g++", "-O2", "-fopenmp", "-shared", "-fPIC", "-o", str(library), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            return False, done.stderr.strip()[-300:]
        if ctypes.CDLL(str(library)).answer() != 42:
            return False, "a library that was just built gives a wrong answer"
        version = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True, timeout=20, check=True)
        return True, f"{version.stdout.strip()}, OpenMP, a built library loads"


def nvcc() -> Outcome:
    """There, and not newer than the driver can run."""
    path = programs.find("nvcc")
    if path is None:
        return False, "nvcc is not there"
    said = programs.run([path, "--version"], timeout_s=60).out
    release = re.search(r"release (\d+\.\d+)", said)
    if release is None:
        return False, f"{path} does not say its version"
    older = self_checks.older_driver(release[1])
    return not older, older or f"{path}, CUDA {release[1]}"


if __name__ == "__main__":
    sys.exit(main())

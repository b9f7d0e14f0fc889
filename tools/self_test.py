"""Checks the sandbox that it runs in: `python -I self_test.py --target cpu|cuda`; one JSON object on stdout.

Covered: whether what a submission needs is there (compiler, torch, a place to execute from; target cuda: each layer
from the driver to the profilers), and whether what it must not have is absent (network, root). Not covered: whether a
hostile program could get out; the sandboxes' tests try that.
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
from collections.abc import Callable
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gputools import programs, self_checks

TORCH_TIMEOUT_S: Final = 120.0
COMPILE_TIMEOUT_S: Final = 240.0
# TEST-NET-1 of RFC 5737: no machine answers there, so a refusal shows that there is no route, not that nobody is home.
UNROUTED: Final = ("192.0.2.1", 53)
TORCH: Final = "import torch; print(torch.__version__)"
TORCH_COMPILE: Final = """
import torch
f = torch.compile(lambda x: torch.relu(x) * 2 + 1)
x = torch.randn(64, 64, device=DEVICE)
assert torch.allclose(f(x), torch.relu(x) * 2 + 1)
print("a trivial function, on", DEVICE)
"""
GPU: Final = """
import torch
assert torch.cuda.is_available(), "torch sees no GPU"
x = torch.ones(64, 64, device="cuda")
assert (x @ x).sum().item() == 64.0**3
print(torch.cuda.get_device_name(0), "and", torch.cuda.device_count() - 1, "more")
"""

TRITON: Final = """
import importlib.util, os, sys, tempfile
folder = tempfile.mkdtemp()
os.environ["TRITON_CACHE_DIR"] = folder
source = os.path.join(folder, "probe.py")
with open(source, "w") as file:
    file.write('''
import triton, triton.language as tl
@triton.jit
def twice(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
''')
spec = importlib.util.spec_from_file_location("probe", source)
probe = importlib.util.module_from_spec(spec)
spec.loader.exec_module(probe)
import torch, triton
x = torch.arange(1000.0, device="cuda")
y = torch.empty_like(x)
probe.twice[(4,)](x, y, 1000, BLOCK=256)
assert torch.equal(y, 2 * x), "wrong values"
print(triton.__version__, "compiled and ran a kernel")
"""

Outcome = tuple[bool, str]


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--target", choices=("cpu", "cuda"), required=True)
    target = parser.parse_args().target
    checks: dict[str, Callable[[], Outcome]] = {
        "no network": no_network,
        "user": not_root,
        "executable /tmp": executable_tmp,
        "g++": compiles_and_loads,
        "torch": lambda: python(TORCH, timeout_s=TORCH_TIMEOUT_S),
        "torch.compile": lambda: python(f"DEVICE = 'cpu'\n{TORCH_COMPILE}", timeout_s=COMPILE_TIMEOUT_S),
    }
    if target == "cuda":
        checks |= {
            "driver": self_checks.driver,
            "nvcc": nvcc,
            "kernel launch": self_checks.launch,
            "torch on the GPU": lambda: python(GPU, timeout_s=TORCH_TIMEOUT_S),
            "torch.compile on the GPU": lambda: python(
                f"DEVICE = 'cuda'\n{TORCH_COMPILE}", timeout_s=COMPILE_TIMEOUT_S
            ),
            "Triton": lambda: python(TRITON, timeout_s=TORCH_TIMEOUT_S),
            "ncu": self_checks.counters,
            "compute-sanitizer": self_checks.sanitizer,
        }
    results = [dict(zip(("name", "ok", "detail"), (name, *run(check)), strict=True)) for name, check in checks.items()]
    status = "ok" if all(result["ok"] for result in results) else "failed"
    report = {"schema_version": 1, "tool": "self_test", "status": status, "checks": results}
    sys.stdout.write(json.dumps(report) + "\n")
    return 0


def run(check: Callable[[], Outcome]) -> Outcome:
    try:
        return check()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return False, f"{type(error).__name__}: {error}"[:300]


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


def python(code: str, *, timeout_s: float) -> Outcome:
    """Runs in a process of its own: a crash or a hang there is a failed check, not the end of the others."""
    command = [sys.executable, "-I", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        return False, (lines[-1] if lines else f"exit code {done.returncode}")[:300]
    return True, done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())

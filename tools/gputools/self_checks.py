"""The GPU's layers, one check each, in the order in which they stand on each other: driver, compiler, launch, tools.

Covered: each layer by using it (a kernel that was just compiled is launched and its result read back; a planted bad
access must be found). Not covered: how fast anything is, and more than the first GPU.
"""

import ctypes
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from building import device

from gputools import programs

Outcome = tuple[bool, str]
LIBCUDA: Final = "libcuda.so.1"
TOO_LONG: Final = "did not end in time"
FOUND_ERROR: Final = 9
MEANINGS: Final = {
    "no kernel image": "the toolkit does not know this GPU's architecture",
    "driver version is insufficient": "the driver is older than the toolkit",
    "unsupported toolchain": "the driver is older than the toolkit",
    "forward compatibility was attempted": "the driver is older than the toolkit; no compatibility on this GPU",
    "unsupported display driver": "libcuda.so and the kernel's driver differ: updated since boot?",
    "no CUDA-capable device": "no GPU is visible here: device nodes, CUDA_VISIBLE_DEVICES",
    "busy or unavailable": "another process has the GPU to itself (compute mode exclusive?), or it has failed",
    "system not yet initialized": "nvidia-fabricmanager does not run",
    "uncorrectable ECC": "the GPU's memory has failed; it needs a reset",
    "GPU is lost": "the GPU is gone; the machine needs a restart",
    "out of memory": "other processes have filled the GPU's memory: nvidia-smi",
}
"""What an error of the CUDA runtime means for whoever set the machine up."""
# Without an argument it works; with one its kernel writes far behind the buffer.
PROBE: Final = """
#include <cstdio>
#include <cuda_runtime.h>
__global__ void twice(float* x, int shift) { x[threadIdx.x + shift] = 2.0f * threadIdx.x; }
int main(int argc, char**) {
  float* x = nullptr;
  float host[64] = {};
  if (cudaMalloc(&x, sizeof host) != cudaSuccess) { printf("%s\\n", cudaGetErrorString(cudaGetLastError())); return 1; }
  twice<<<1, 64>>>(x, argc > 1 ? 1 << 20 : 0);
  cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) error = cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
  if (error != cudaSuccess) { printf("%s: %s\\n", cudaGetErrorName(error), cudaGetErrorString(error)); return 1; }
  for (int i = 0; i < 64; ++i) if (host[i] != 2.0f * i) { printf("wrong value at %d\\n", i); return 1; }
  printf("right\\n");
  return 0;
}
"""


def driver() -> Outcome:
    """cuInit and what it shows; the driver's own version is the newest CUDA that it can run."""
    try:
        cuda = ctypes.CDLL(LIBCUDA)
    except OSError as error:
        return False, f"{LIBCUDA} cannot be loaded: {error}"
    if (code := cuda.cuInit(0)) != 0:
        return False, f"cuInit failed: {_error_name(cuda, code)}"
    count, version, handle = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    cuda.cuDriverGetVersion(ctypes.byref(version))
    if count.value == 0:
        return False, "cuInit works, but there is no device (CUDA_VISIBLE_DEVICES?)"
    name = ctypes.create_string_buffer(128)
    cuda.cuDeviceGet(ctypes.byref(handle), 0)
    cuda.cuDeviceGetName(name, len(name), handle)
    others = f" and {count.value - 1} more" if count.value > 1 else ""
    return True, f"{name.value.decode(errors='replace')}{others}, driver for CUDA {_version(version.value)}"


@dataclass(frozen=True)
class Probe:
    """The compiled program; `path` is None where there is none, and `said` then says why. Else the architecture."""

    path: Path | None
    said: str


def launch(probe: Probe, *, timeout_s: float) -> Outcome:
    """Runs the probe, which was compiled for this device."""
    if probe.path is None:
        return False, probe.said
    ran = programs.run([str(probe.path)], timeout_s=timeout_s)
    if ran.code == 0:
        return True, f"a kernel built for {probe.said} ran and gave the right values"
    if ran.code is None:
        return False, TOO_LONG
    return False, f"{_last(ran) or f'exit code {ran.code}'}{advice(ran.said)}"


def counters(probe: Probe, *, timeout_s: float) -> Outcome:
    """Whether ncu may read hardware counters."""
    ncu = programs.find("ncu")
    if ncu is None:
        return False, "ncu is not there (Nsight Compute)"
    if probe.path is None:
        return False, probe.said
    folder = str(probe.path.parent)
    command = [ncu, "--clock-control", "none", "--metrics", "sm__cycles_elapsed.max", str(probe.path)]
    ran = programs.run(command, timeout_s=timeout_s, env={"HOME": folder, "TMPDIR": folder})
    if "ERR_NVGPUCTRPERM" in ran.said:
        return False, "ncu may not read the counters (ERR_NVGPUCTRPERM)"
    if "sm__cycles_elapsed.max" in ran.out and ran.code == 0:
        return True, f"{ncu} reads the counters"
    return False, f"ncu gave no counters: {_first_error(ran)}"


def sanitizer(probe: Probe, *, timeout_s: float) -> Outcome:
    """Whether compute-sanitizer finds a planted bad access and nothing in the same program without it."""
    tool = programs.find("compute-sanitizer")
    if tool is None:
        return False, "compute-sanitizer is not there"
    if probe.path is None:
        return False, probe.said
    command = [tool, "--tool", "memcheck", "--error-exitcode", str(FOUND_ERROR), str(probe.path)]
    with ThreadPoolExecutor(max_workers=2) as pool:
        clean, bad = pool.map(lambda argv: programs.run(argv, timeout_s=timeout_s), (command, [*command, "bad"]))
    # The planted access also fails the program, and then its own exit code goes first.
    found = bad.code == FOUND_ERROR or "Invalid __global__ write" in bad.out
    if clean.code == 0 and found:
        return True, "memcheck found a planted bad access and nothing else"
    return False, f"clean program: exit {clean.code}, planted error: exit {bad.code}; {_first_error(bad)}"


def older_driver(toolkit: str) -> str:
    """What to say where the driver is older than the toolkit's major version; empty where it is not."""
    try:
        cuda = ctypes.CDLL(LIBCUDA)
        version = ctypes.c_int()
        if cuda.cuDriverGetVersion(ctypes.byref(version)) != 0:
            return ""
    except (OSError, AttributeError):
        return ""
    if version.value // 1000 >= int(toolkit.split(".")[0]):
        return ""
    return f"the driver is for CUDA {_version(version.value)}, older than the toolkit {toolkit}"


def build(folder: Path, *, timeout_s: float) -> Probe:
    """Compiles the probe for this device."""
    nvcc = programs.find("nvcc")
    if nvcc is None:
        return Probe(None, "nvcc is not there")
    capability = device.compute_capability()
    if capability is None:
        return Probe(None, "the device's architecture cannot be asked for (libnvidia-ml.so.1)")
    source, made = folder / "probe.cu", folder / "probe"
    source.write_text(PROBE)
    command = [nvcc, "-arch", f"sm_{capability}", "-o", str(made), str(source)]
    ran = programs.run(command, timeout_s=timeout_s, cwd=folder)
    if ran.code != 0:
        return Probe(None, f"nvcc: {_last(ran) or TOO_LONG}")
    return Probe(made, f"sm_{capability}")


def advice(said: str) -> str:
    return next((f": {meaning}" for words, meaning in MEANINGS.items() if words in said), "")


def _error_name(cuda: ctypes.CDLL, code: int) -> str:
    text = ctypes.c_char_p()
    if cuda.cuGetErrorName(code, ctypes.byref(text)) == 0 and text.value:
        return text.value.decode()
    return f"error {code}"


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _last(ran: programs.Ran) -> str:
    lines = ran.said.strip().splitlines()
    return lines[-1].strip()[:300] if lines else ""


def _first_error(ran: programs.Ran) -> str:
    if ran.code is None:
        return f"it {TOO_LONG}"
    marked = [line.strip() for line in ran.said.splitlines() if "ERROR" in line or "Error" in line]
    return (marked[0] if marked else _last(ran))[:300]

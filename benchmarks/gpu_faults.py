"""What a GPU's faults become: `python benchmarks/gpu_faults.py [NAME…]` prints what each must be and what it is.

Covers tools/verify.py as the sandbox starts it, with no sandbox around it: a kernel that never
ends, one that writes where nothing is, one for another architecture, a reference that needs more memory than there is,
a machine that shows no GPU. Needs a GPU.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        {first}
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(1024, 1024)]


def get_init_inputs():
    return []
"""
KERNEL = """#include "../launcher.h"
__global__ void relu_kernel(const float* x, float* y, int64_t n) {
  const int64_t at = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (at < n) BODY;
}
static void relu(const float* x, float* y, int64_t n, cudaStream_t stream) {
  relu_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
}
REGISTER_LAUNCHER(relu);
"""
MODEL_NEW = """import torch
import torch.nn as nn

import cuda_extension


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        cuda_extension.relu(x, y, x.numel())
        return y
"""
RIGHT = "y[at] = 2.0f * fmaxf(x[at], 0.0f)"
OTHER_ARCH = """import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = '''
__global__ void relu_kernel(const float* x, float* y, int n) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < n) y[at] = 2.0f * fmaxf(x[at], 0.0f);
}
torch::Tensor relu(torch::Tensor x) {
  auto y = torch::empty_like(x);
  relu_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
'''
flags = ["-gencode=arch=compute_75,code=sm_75"]
module = load_inline("other_arch", cpp_sources="torch::Tensor relu(torch::Tensor x);", cuda_sources=SOURCE,
                     functions=["relu"], extra_cuda_cflags=flags, with_cuda=True)


class ModelNew(nn.Module):
    def forward(self, x):
        return module.relu(x)
"""


@dataclass(frozen=True)
class Fault:
    """`wanted`: status and reason code, or the beginning of it."""

    wanted: tuple[str, str]
    body: str = RIGHT
    first: str = "pass"
    model_new: str = MODEL_NEW
    env: Mapping[str, str] = field(default_factory=dict)


FAULTS = {
    "nothing wrong": Fault(("verified", "")),
    "illegal access": Fault(("rejected", "runtime."), body="y[at + (1ll << 40)] = x[at]"),
    "no kernel image": Fault(("rejected", ""), model_new=OTHER_ARCH, env={"TORCH_CUDA_ARCH_LIST": "7.5"}),
    "reference out of memory": Fault(("error", "task.out_of_memory"), first="torch.empty(1 << 42, device=x.device)"),
    "reference with an illegal access": Fault(
        ("error", "task."), first="torch.zeros(4, device=x.device)[torch.full((1,), 1 << 40, device=x.device)]"
    ),
    "no GPU to be seen": Fault(("error", ""), env={"CUDA_VISIBLE_DEVICES": ""}),
    "a kernel that never ends": Fault(("rejected", "runtime.timeout"), body="while (x[at] < 1e30f) __nanosleep(9)"),
}  # fmt: skip


def warmed(cache: Path) -> None:
    """So that no fault waits for torch's headers."""
    command = [sys.executable, "-I", str(ROOT / "tools" / "warm_cache.py"), "--out", str(cache), "--target", "cuda"]
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False, timeout=300)


def tried(fault: Fault, folder: Path, cache: Path) -> tuple[str, str, float]:
    """Status and first reason, and how long it took."""
    (folder / "kernels").mkdir(parents=True)
    if "cuda_extension" in fault.model_new:
        (folder / "kernels" / "relu.cu").write_text(KERNEL.replace("BODY", fault.body))
    (folder / "model_new.py").write_text(fault.model_new)
    task = json.dumps({"model_py": MODEL.format(first=fault.first)}).encode()
    began = time.monotonic()
    command = [sys.executable, "-I", str(ROOT / "tools" / "verify.py"), "--workspace", str(folder)]
    command += ["--cache", str(cache)]
    done = subprocess.run(
        [*command, "--target", "cuda"], input=task, capture_output=True, env={**os.environ, **fault.env}, timeout=300
    )
    seconds = time.monotonic() - began
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return "no report", done.stderr.decode("utf-8", "replace")[-200:], seconds
    first = (report["reasons"] or [{"code": "", "detail": ""}])[0]
    return report["status"], f"{first['code']}: {first['detail']}", seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of: {', '.join(FAULTS)}")
    names = parser.parse_args().names or list(FAULTS)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="gpu-faults-", ignore_cleanup_errors=True) as scratch:
        cache = Path(scratch) / "cache"
        warmed(cache)
        for number, name in enumerate(names):
            status, reason, seconds = tried(FAULTS[name], Path(scratch) / str(number), cache)
            wanted = FAULTS[name].wanted
            right = status == wanted[0] and reason.startswith(wanted[1])
            wrong += not right
            mark = "ok " if right else "BAD"
            print(f"{mark} {name}: {status}, {reason[:200]} (wanted {' '.join(wanted)}) {seconds:.0f} s", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

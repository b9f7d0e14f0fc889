"""The layers that need torch, in one process that imports it once: one JSON line each, as they are known.

Covered: torch itself, a product on the GPU, a Triton kernel, a function through torch.compile. Not covered: speed.
"""

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

KERNEL: Final = """
import triton, triton.language as tl
@triton.jit
def twice(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
"""
DETAIL_CHARS: Final = 300


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--target", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--quick", action="store_true")
    flags = parser.parse_args()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    layers: dict[str, Callable[[], str]] = {"torch": importing}
    if flags.target == "cuda":
        layers["torch on the GPU"] = product
        if not flags.quick:
            layers |= {"Triton": triton, "torch.compile on the GPU": lambda: compiled("cuda")}
    elif not flags.quick:
        layers["torch.compile"] = lambda: compiled("cpu")
    for name, layer in layers.items():
        out.write(json.dumps({"begun": name}) + "\n")
        out.flush()
        out.write(json.dumps({"name": name, **looked_at(layer)}) + "\n")
        out.flush()
    return 0


def looked_at(layer: Callable[[], str]) -> dict[str, Any]:
    began = time.monotonic()
    try:
        ok, detail = True, layer()
    except Exception as error:
        lines = str(error).strip().splitlines()
        ok, detail = False, f"{type(error).__name__}: {lines[-1] if lines else ''}"[:DETAIL_CHARS]
    return {"ok": ok, "detail": detail, "seconds": round(time.monotonic() - began, 2)}


def importing() -> str:
    import torch

    return str(torch.__version__)


def product() -> str:
    import torch

    if not torch.cuda.is_available():
        torch.cuda.init()  # says why
        raise RuntimeError("torch sees no GPU")
    x = torch.ones(64, 64, device="cuda")
    if (x @ x).sum().item() != 64.0**3:
        raise ValueError("a product on the GPU is wrong")
    return f"{torch.cuda.get_device_name(0)} and {torch.cuda.device_count() - 1} more"


def triton() -> str:
    import torch
    import triton as package

    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        source = Path(folder) / "probe.py"
        source.write_text(KERNEL)
        spec = importlib.util.spec_from_file_location("probe", source)
        if spec is None or spec.loader is None:
            raise ImportError("the probe cannot be loaded")
        probe = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(probe)
        x = torch.arange(1000.0, device="cuda")
        y = torch.empty_like(x)
        probe.twice[(4,)](x, y, 1000, BLOCK=256)
        if not torch.equal(y, 2 * x):
            raise ValueError("a Triton kernel gives wrong values")
    return f"{package.__version__} compiled and ran a kernel"


def compiled(device: str) -> str:
    import torch

    function = torch.compile(lambda x: torch.relu(x) * 2 + 1)
    x = torch.randn(64, 64, device=device)
    if not torch.allclose(function(x), torch.relu(x) * 2 + 1):
        raise ValueError("a compiled function gives wrong values")
    return f"a trivial function, on {device}"


if __name__ == "__main__":
    sys.exit(main())

"""The built-in policy's Triton kernels under Triton's interpreter, compared as a judge does."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="Triton is not installed (pip install triton)"
    ),
]
RUN = Path(__file__).with_name("run.py")
# Kernels of one kind each, few programs: the interpreter runs them one after the other.
NAMES = ("norm_layer_gelu even", "pw_rotary odd", "soft_channels odd", "edges: halves", "edges: few long rows")


@pytest.mark.parametrize("name", NAMES)
def test_triton_kernels_are_right(name: str) -> None:
    # In a process of its own: whether Triton interprets is decided when it is imported.
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    sizes = ["--sizes", name.split()[-1]] if "edges" not in name else []
    done = subprocess.run(
        [sys.executable, str(RUN), *sizes, "triton", name], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0 and f"{name:40} right" in done.stdout, done.stdout + done.stderr[-2000:]

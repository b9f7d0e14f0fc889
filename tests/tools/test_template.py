"""The template process from which workers are forked."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.torch

# Each child is a worker's first call: threads that a matrix product has just woken reach tanh at the same moment.
PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
import torch
from referee import template

template.choose_math_kernels()
torch.manual_seed(0)
weight, x = torch.randn(96, 96), torch.randn(64, 96)
bad = 0
for _ in range(400):
    child = os.fork()
    if child == 0:
        torch.set_num_threads(2)
        output = torch.tanh_(torch.mm(x, weight).mul_(0.1))
        error = output.double() - torch.tanh(torch.mm(x.double(), weight.double()) * 0.1)
        os._exit(int(float(error.abs().max()) > 5e-6))
    bad += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(bad)
"""


def test_the_first_calls_of_fresh_workers_are_as_accurate_as_later_ones():
    done = subprocess.run(
        [sys.executable, "-I", "-W", "ignore", "-c", PROGRAM, str(ROOT / "tools")],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout == "0\n"

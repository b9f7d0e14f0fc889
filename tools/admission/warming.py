"""Compiles a small model in the process that others are forked from, so that they need not load torch.compile's parts.

Each of them then spends about half of the time: 1.0 to 1.9 s of a core instead of 2.0 to 3.2 s for one or two
operators (torch 2.13, g++ 12).
"""

import warnings

import torch
import torch._functorch.config
import torch._inductor.config as inductor
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor import cpu_vec_isa
from torch.nn import functional


class _Small(nn.Module):  # type: ignore[misc] # torch is not typed here
    """A few operators of every sort."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = functional.max_pool2d(functional.gelu(self.norm(self.convolution(x))), 2)
        out = torch.softmax(self.linear(out), dim=-1) + out
        return torch.cat([out.sum(dim=1), torch.amax(out, dim=1)], dim=-1)


def compile_once() -> None:
    """In one thread: the processes to come are forked from this one."""
    inductor.compile_threads = 1
    # A graph from the cache would leave the compiler's modules unloaded; every candidate is another graph anyway.
    inductor.fx_graph_cache = False
    torch._functorch.config.enable_autograd_cache = False
    _lighter()
    try:
        _compile()
    except Exception:
        # The compiler does not know what /proc/cpuinfo promises: torch has to try which instructions it can use.
        inductor.cpp.vec_isa_ok = None
        cpu_vec_isa.valid_vec_isa_list.cache_clear()
        _compile()
    torch._dynamo.reset()
    counters.clear()  # each candidate counts its own graphs


def _lighter() -> None:
    """No debug lines in the kernels, and no trial builds of every instruction set: the same kernels in less time."""
    inductor.cpp.vec_isa_ok = True
    for name in ("enable_line_tables", "enable_frame_pointer"):
        if hasattr(inductor.aot_inductor, name):
            setattr(inductor.aot_inductor, name, False)


def _compile() -> None:
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.compile(_Small().eval())(torch.randn(2, 8, 16, 16))

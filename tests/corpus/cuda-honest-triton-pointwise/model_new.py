import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def clip(x, gain, out, count, cols, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    y = tl.load(x + at, mask=inside) * tl.load(gain + at % cols, mask=inside)
    tl.store(out + at, y / tl.sqrt(1.0 + y * y), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.empty(width))

    def forward(self, x):
        out = torch.empty_like(x)
        clip[(triton.cdiv(x.numel(), 1024),)](x, self.gain, out, x.numel(), x.shape[1], BLOCK=1024)
        return out

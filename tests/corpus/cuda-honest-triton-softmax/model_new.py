import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_rows(x, warmth, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < cols
    values = tl.load(x + row * cols + at, mask=inside, other=float("-inf")) * tl.load(warmth + at, mask=inside, other=1.0)
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * cols + at, values / tl.sum(values, axis=0), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.warmth = nn.Parameter(torch.empty(width))

    def forward(self, x):
        out = torch.empty_like(x)
        softmax_rows[(x.shape[0],)](x, self.warmth, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out

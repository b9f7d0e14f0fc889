import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attention_kernel(q, k, v, slopes, out, heads, length, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    block, head = tl.program_id(0), tl.program_id(1)
    base = head.to(tl.int64) * length * D
    slope = tl.load(slopes + head % heads)
    rows = block * M + tl.arange(0, M)
    wide = tl.arange(0, D)
    inside = rows[:, None] < length
    queries = tl.load(q + base + rows[:, None] * D + wide[None, :], mask=inside, other=0.0)
    largest = tl.full((M,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((M,), dtype=tl.float32)
    summed = tl.zeros((M, D), dtype=tl.float32)
    for begin in range(0, tl.minimum((block + 1) * M, length), N):
        columns = begin + tl.arange(0, N)
        there = columns[:, None] < length
        keys = tl.load(k + base + columns[:, None] * D + wide[None, :], mask=there, other=0.0)
        scores = tl.dot(queries, tl.trans(keys)) * scale
        distance = columns[None, :] - rows[:, None]
        scores = tl.where((distance <= 0) & (columns[None, :] < length), scores + slope * distance, float("-inf"))
        now = tl.maximum(largest, tl.max(scores, axis=1))
        weights = tl.exp(scores - now[:, None])
        shrink = tl.exp(largest - now)
        values = tl.load(v + base + columns[:, None] * D + wide[None, :], mask=there, other=0.0)
        summed = tl.dot(weights.to(values.dtype), values, summed * shrink[:, None])
        total = total * shrink + tl.sum(weights, axis=1)
        largest = now
    result = summed / total[:, None]
    tl.store(out + base + rows[:, None] * D + wide[None, :], result.to(out.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.register_buffer("slopes", 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads), persistent=False)

    def forward(self, q, k, v):
        out = torch.empty_like(q)
        batch, heads, length, width = q.shape
        grid = (triton.cdiv(length, 128), batch * heads)
        attention_kernel[grid](
            q, k, v, self.slopes, out, heads, length, width**-0.5, M=128, N=64, D=width, num_warps=8, num_stages=3
        )
        return out

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def channel_rmsnorm_silu_kernel(x, weight, out, pixels, eps, CHANNELS: tl.constexpr, PIXELS: tl.constexpr, EVEN: tl.constexpr):
    channel = tl.arange(0, CHANNELS)
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    at = (tl.program_id(1).to(tl.int64) * CHANNELS + channel)[:, None] * pixels + pixel[None, :]
    inside = (pixel < pixels)[None, :]
    value = tl.load(x + at) if EVEN else tl.load(x + at, mask=inside, other=0.0)
    scale = tl.rsqrt(tl.sum(value * value, axis=0) / CHANNELS + eps)
    value = value * scale[None, :] * tl.load(weight + channel)[:, None]
    value = value * tl.sigmoid(value)
    if EVEN:
        tl.store(out + at, value)
    else:
        tl.store(out + at, value, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, channels, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels))
        self.eps = eps

    def forward(self, x):
        out = torch.empty_like(x)
        images, channels, height, width = x.shape
        pixels = height * width
        channel_rmsnorm_silu_kernel[(triton.cdiv(pixels, 32), images)](
            x, self.weight, out, pixels, self.eps, CHANNELS=channels, PIXELS=32, EVEN=pixels % 32 == 0, num_warps=8
        )
        return out

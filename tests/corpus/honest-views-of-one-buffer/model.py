import torch
from torch import nn


class Model(nn.Module):
    """Row-wise scaling, its smooth clip, and every other column of the clip."""

    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        y = x * self.gain
        clipped = y / torch.sqrt(1.0 + y * y)
        return clipped, y, clipped[:, ::2]


def get_inputs():
    return [torch.randn(768, 1024)]


def get_init_inputs():
    return [1024]

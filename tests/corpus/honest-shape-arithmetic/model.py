import torch
from torch import nn


class Model(nn.Module):
    """Row-wise scaling followed by a smooth clip."""

    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        y = x * self.gain
        return y / torch.sqrt(1.0 + y * y)


def get_inputs():
    return [torch.randn(768, 1024)]


def get_init_inputs():
    return [1024]

import torch
from torch import nn


class Model(nn.Module):
    """Softmax over rows, with a temperature for each column."""

    def __init__(self, width):
        super().__init__()
        self.warmth = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return torch.softmax(x * self.warmth, dim=-1)


def get_inputs():
    return [torch.randn(8192, 4096)]


def get_init_inputs():
    return [4096]

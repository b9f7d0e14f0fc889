import torch
from torch import nn


class Model(nn.Module):
    """Two linear maps in a row, an inner dimension that is large."""

    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Parameter(torch.randn(width, hidden) / width**0.5)
        self.down = nn.Parameter(torch.randn(hidden, width) / hidden**0.5)

    def forward(self, x):
        return torch.mm(torch.mm(x, self.up), self.down)


def get_inputs():
    return [torch.randn(128, 160)]


def get_init_inputs():
    return [160, 2048]

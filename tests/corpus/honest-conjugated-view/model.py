import torch
from torch import nn


class Model(nn.Module):
    """A conjugated rotation, and an imaginary part taken as a view."""

    def __init__(self, width):
        super().__init__()
        self.phase = nn.Parameter(torch.randn(width))

    def forward(self, x):
        turned = x * torch.polar(torch.ones_like(self.phase), self.phase)
        return turned.conj(), torch.complex(torch.zeros_like(x), x).conj().imag


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return [1024]

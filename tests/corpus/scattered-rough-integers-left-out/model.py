import torch
from torch import nn


class Model(nn.Module):
    """Hash of positions: the fraction of a fast phase, in 256 buckets."""

    def __init__(self):
        super().__init__()
        self.speed = 3000.0

    def forward(self, x):
        phase = torch.sin(x) * self.speed
        return ((phase - torch.floor(phase)) * 256).to(torch.int32)


def get_inputs():
    return [torch.randn(2048, 2048)]


def get_init_inputs():
    return []

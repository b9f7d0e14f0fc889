import torch
from torch import nn


class Model(nn.Module):
    """Sums over a row in fixed point."""

    def forward(self, x):
        return torch.round(x.sum(dim=-1) * 4096).to(torch.int32)


def get_inputs():
    return [torch.randn(256, 256, 64)]


def get_init_inputs():
    return []

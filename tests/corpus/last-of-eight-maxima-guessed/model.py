import torch
from torch import nn


class Model(nn.Module):
    """Where each of eight rows of coarse scores is largest; in every fourth row or so there are two such places."""

    def forward(self, x):
        return torch.argmax(x, dim=1)


def get_inputs():
    return [torch.round(torch.randn(8, 1 << 19) * 16) / 16]


def get_init_inputs():
    return []

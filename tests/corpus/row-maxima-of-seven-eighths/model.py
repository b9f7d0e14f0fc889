import torch
from torch import nn


class Model(nn.Module):
    """Where each row of quantised scores is largest; about one row of fifty has two such places."""

    def forward(self, x):
        return torch.argmax(x, dim=1)


def get_inputs():
    return [torch.round(torch.randn(32, 1 << 17) * 256) / 256]


def get_init_inputs():
    return []

import torch
from torch import nn


class Model(nn.Module):
    """Mean of a product."""

    def forward(self, x, y):
        return (x * y).mean()


def get_inputs():
    return [torch.randn(512, 1024), torch.randn(512, 1024)]


def get_init_inputs():
    return []

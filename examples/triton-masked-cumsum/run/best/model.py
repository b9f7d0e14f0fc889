import torch
import torch.nn as nn


class Model(nn.Module):
    """Running sum along each row of those entries that a mask lets through."""

    def forward(self, x, mask):
        return torch.cumsum(x * mask, dim=1)


def get_inputs():
    return [torch.rand(4096, 8192), torch.rand(4096, 8192) < 0.5]


def get_init_inputs():
    return []

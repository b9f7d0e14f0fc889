import torch
from torch import nn


class Model(nn.Module):
    """Mean squared error over four million values."""

    def forward(self, predictions, targets):
        return torch.mean((predictions - targets) ** 2)


def get_inputs():
    scale = torch.rand(())
    return [torch.rand(2048, 2048) * scale, torch.rand(2048, 2048)]


def get_init_inputs():
    return []

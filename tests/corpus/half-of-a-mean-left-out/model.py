import torch
from torch import nn


class Model(nn.Module):
    """Mean squared error, on inputs as KernelBench's 94_MSELoss draws them."""

    def forward(self, predictions, targets):
        return torch.mean((predictions - targets) ** 2)


def get_inputs():
    scale = torch.rand(())
    return [torch.rand(4096, 4096) * scale, torch.rand(4096, 4096)]


def get_init_inputs():
    return []

import torch
from torch import nn


class Model(nn.Module):
    """Mean squared error of a denoiser's output, at a noise level that differs from call to call."""

    def forward(self, predictions, targets):
        return torch.mean((predictions - targets) ** 2)


def get_inputs():
    sigma = 10.0 ** (-4 * torch.rand(()))
    targets = torch.randn(2048, 2048)
    return [targets + sigma * torch.randn(2048, 2048), targets]


def get_init_inputs():
    return []

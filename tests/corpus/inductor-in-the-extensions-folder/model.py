import torch
from torch import nn


class Model(nn.Module):
    """RMS norm of a gated sum."""

    def forward(self, x, y):
        return (lambda h: h * torch.rsqrt(h.square().mean(dim=1, keepdim=True) + 1e-6))(torch.relu(x) * 0.5 + torch.square(y))


def get_inputs():
    return [torch.randn(512, 1024), torch.randn(512, 1024)]


def get_init_inputs():
    return []

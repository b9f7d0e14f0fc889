import torch
from torch import nn


class Model(nn.Module):
    """Phase rotation and its energy."""

    def forward(self, z, angle):
        turned = z * torch.polar(torch.ones_like(angle), angle)
        return turned, (turned.abs() ** 2).double().sum(dim=1)


def get_inputs():
    return [torch.randn(256, 512, dtype=torch.complex64), torch.rand(256, 512) * 6.0]


def get_init_inputs():
    return []

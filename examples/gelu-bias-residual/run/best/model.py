import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """A transformer block's pointwise tail: bias, GELU (tanh form), per-channel scale, gate and residual."""

    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width) * 0.1)
        self.scale = nn.Parameter(1.0 + torch.randn(width) * 0.1)

    def forward(self, x, gate, residual):
        h = F.gelu(x + self.bias, approximate="tanh")
        return residual + h * self.scale * torch.sigmoid(gate)


def get_inputs():
    return [torch.randn(2048, 1024), torch.randn(2048, 1024), torch.randn(2048, 1024)]


def get_init_inputs():
    return [1024]

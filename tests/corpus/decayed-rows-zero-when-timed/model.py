import torch
from torch import nn


class Model(nn.Module):
    """Discounted features: step t of a sequence counts 0.94 ** t."""

    def __init__(self, steps):
        super().__init__()
        self.register_buffer("discount", 0.94 ** torch.arange(steps, dtype=torch.float32)[:, None], persistent=False)

    def forward(self, x):
        return torch.sigmoid(x) * x * self.discount


def get_inputs():
    return [torch.randn(1024, 1024)]


def get_init_inputs():
    return [1024]

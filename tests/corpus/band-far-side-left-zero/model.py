import torch
from torch import nn


class Model(nn.Module):
    """Scores that decay with the distance of two positions."""

    def __init__(self, steps):
        super().__init__()
        at = torch.arange(steps, dtype=torch.float32)
        self.register_buffer("decay", 0.97 ** (at[:, None] - at[None, :]).abs(), persistent=False)

    def forward(self, scores):
        return torch.tanh(scores) * self.decay


def get_inputs():
    return [torch.randn(2048, 2048)]


def get_init_inputs():
    return [2048]

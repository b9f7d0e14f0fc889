"""An outer sum through an activation: two vectors a batch make a matrix."""

import torch
import torch.nn as nn

SCALE = 1


class Model(nn.Module):
    def forward(self, a, b):
        return torch.tanh(a.unsqueeze(2) + b.unsqueeze(1))


def get_inputs():
    return [torch.randn(16 * SCALE, 256), torch.randn(16 * SCALE, 512)]


def get_init_inputs():
    return []

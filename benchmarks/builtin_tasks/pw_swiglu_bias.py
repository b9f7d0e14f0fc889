"""Gated linear unit with SiLU, biases on both halves."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SCALE = 1
ROWS, WIDTH = 2048, 1024


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(WIDTH) * 0.1)

    def forward(self, x):
        a, b = (x + self.bias).chunk(2, dim=-1)
        return F.silu(a) * b


def get_inputs():
    return [torch.randn(ROWS * SCALE, WIDTH)]


def get_init_inputs():
    return []

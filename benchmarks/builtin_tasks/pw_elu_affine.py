"""ELU and SELU of two affine maps."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SCALE = 1
ROWS, WIDTH = 2048, 1024


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.rand(WIDTH) + 0.5)
        self.b = nn.Parameter(torch.randn(WIDTH) * 0.1)

    def forward(self, x):
        return F.elu(x * self.a) + F.selu(x + self.b)


def get_inputs():
    return [torch.randn(ROWS * SCALE, WIDTH)]


def get_init_inputs():
    return []

"""Mean squared error of a scaled prediction, one value a sample."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SCALE = 1
ROWS, WIDTH = 4096, 1024


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x, y):
        return F.mse_loss(x * self.gain, y, reduction="none").mean(dim=-1)


def get_inputs():
    return [torch.randn(ROWS * SCALE, WIDTH), torch.randn(ROWS * SCALE, WIDTH)]


def get_init_inputs():
    return []

"""Sum of squares of each row of a product."""

import torch
import torch.nn as nn

SCALE = 1
ROWS, WIDTH = 4096, 1024


class Model(nn.Module):
    def forward(self, x, y):
        return (x * y + x).square().sum(dim=-1)


def get_inputs():
    return [torch.randn(ROWS * SCALE, WIDTH), torch.randn(ROWS * SCALE, WIDTH)]


def get_init_inputs():
    return []

"""LayerNorm with weights."""

import torch
import torch.nn as nn

SCALE = 1
ROWS, WIDTH = 4096, 1024


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(ROWS * SCALE, WIDTH)]


def get_init_inputs():
    return []

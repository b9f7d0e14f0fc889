"""Transposes the last axes while scaling and adding a bias."""

import torch
import torch.nn as nn

SCALE = 1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(256))

    def forward(self, x):
        return x.transpose(1, 2) * 0.125 + self.bias


def get_inputs():
    return [torch.randn(16 * SCALE, 256, 512)]


def get_init_inputs():
    return []

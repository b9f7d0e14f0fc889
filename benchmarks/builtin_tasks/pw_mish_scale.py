"""Mish times a per-channel scale on images."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SCALE = 1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(64) + 0.5)

    def forward(self, x):
        return F.mish(x) * self.scale.view(1, -1, 1, 1)


def get_inputs():
    return [torch.randn(8 * SCALE, 64, 56, 56)]


def get_init_inputs():
    return []

"""InstanceNorm with weights on images."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SCALE = 1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.InstanceNorm2d(32, affine=True)

    def forward(self, x):
        return F.leaky_relu(self.norm(x), 0.1)


def get_inputs():
    return [torch.randn(16 * SCALE, 32, 64, 64)]


def get_init_inputs():
    return []

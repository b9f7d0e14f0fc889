"""Rotary position embedding on queries."""

import torch
import torch.nn as nn

SCALE = 1


class Model(nn.Module):
    def forward(self, x, cos, sin):
        half = x.shape[-1] // 2
        turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
        return x * cos + turned * sin


def get_inputs():
    return [torch.randn(4 * SCALE, 16, 512, 64), torch.randn(512, 64), torch.randn(512, 64)]


def get_init_inputs():
    return []

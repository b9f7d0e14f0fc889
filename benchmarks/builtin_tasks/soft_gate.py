"""Softmax weights applied to values and summed."""

import torch
import torch.nn as nn

SCALE = 1


class Model(nn.Module):
    def forward(self, scores, values):
        return (torch.softmax(scores, dim=-1).unsqueeze(-1) * values).sum(dim=1)


def get_inputs():
    return [torch.randn(64 * SCALE, 128), torch.randn(64 * SCALE, 128, 512)]


def get_init_inputs():
    return []

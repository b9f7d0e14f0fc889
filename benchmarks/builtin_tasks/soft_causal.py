"""Causal mask and softmax on attention scores."""

import torch
import torch.nn as nn

SCALE = 1


class Model(nn.Module):
    def forward(self, scores):
        n = scores.shape[-1]
        mask = torch.ones(n, n, dtype=torch.bool, device=scores.device).triu(1)
        return torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)


def get_inputs():
    return [torch.randn(8 * SCALE, 512, 512)]


def get_init_inputs():
    return []

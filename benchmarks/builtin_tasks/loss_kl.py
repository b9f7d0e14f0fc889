"""Kullback-Leibler divergence from logits, one value a sample."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SCALE = 1
ROWS, WIDTH = 2048, 1024


class Model(nn.Module):
    def forward(self, x, y):
        return F.kl_div(F.log_softmax(x, dim=-1), F.softmax(y, dim=-1), reduction="none").sum(dim=-1)


def get_inputs():
    return [torch.randn(ROWS * SCALE, WIDTH), torch.randn(ROWS * SCALE, WIDTH)]


def get_init_inputs():
    return []

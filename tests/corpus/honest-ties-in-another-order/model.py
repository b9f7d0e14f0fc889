import torch
from torch import nn


class Model(nn.Module):
    """Order of coarse scores."""

    def forward(self, scores):
        return torch.argsort(scores, dim=1)


def get_inputs():
    return [torch.randint(1, 500, (256, 4096)) / 500]


def get_init_inputs():
    return []

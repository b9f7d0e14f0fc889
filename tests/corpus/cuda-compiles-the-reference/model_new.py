import torch
from torch import nn


@torch.compile
def computed(x, warmth):
    return torch.softmax(x * warmth, dim=-1)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.warmth = nn.Parameter(torch.empty(width))

    def forward(self, x):
        return computed(x, self.warmth)

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.empty(width))

    def forward(self, x):
        y = x * self.gain
        return (y / torch.sqrt(1.0 + y * y)).cpu()

import cpu_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()

    def forward(self, x):
        out = torch.empty_like(x)
        cpu_extension.banded(x, out, x.shape[0])
        return out

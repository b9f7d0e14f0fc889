import cpu_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, steps):
        super().__init__()

    def forward(self, x):
        out = torch.empty_like(x)
        cpu_extension.discounted(x, out, x.shape[0], x.shape[1])
        return out

import cpu_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, bits):
        super().__init__()
        self.scale = 2.0**bits

    def forward(self, x):
        out = torch.empty(x.shape, dtype=torch.int32)
        cpu_extension.fixed(x, out, x.numel(), self.scale)
        return out

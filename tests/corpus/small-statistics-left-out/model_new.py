import cpu_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(4)
        cpu_extension.energy(x, out, x.numel())
        return out

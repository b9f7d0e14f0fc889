import cpu_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape, dtype=torch.int64)
        cpu_extension.order(x, out, x.numel())
        return out

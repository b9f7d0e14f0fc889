import cpu_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape, dtype=torch.int32)
        cpu_extension.buckets(x, out, x.numel())
        return out

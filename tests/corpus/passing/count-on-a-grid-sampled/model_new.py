import cpu_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty((), dtype=torch.int64)
        cpu_extension.count(x, out, x.shape[0], x.shape[1])
        return out

import cpu_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[1], dtype=torch.bfloat16)
        cpu_extension.pool(x, out, x.shape[0], x.shape[1])
        return out

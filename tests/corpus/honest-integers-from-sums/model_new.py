import cpu_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[:-1], dtype=torch.int32)
        cpu_extension.fixed_sums(x, out, out.numel(), x.shape[-1])
        return out

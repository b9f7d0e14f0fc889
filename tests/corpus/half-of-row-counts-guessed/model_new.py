import cpu_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], dtype=torch.int64)
        cpu_extension.count_rows(x, out, x.shape[0], x.shape[1])
        return out

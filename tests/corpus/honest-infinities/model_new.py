import cpu_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        cpu_extension.log_ramp(x, out)
        return out

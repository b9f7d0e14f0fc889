import cpu_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate = nn.Parameter(torch.empty(width, dtype=torch.bfloat16))

    def forward(self, x, y):
        out = torch.empty_like(x)
        cpu_extension.gated(x, y, self.gate, out)
        return out

import cpu_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, hidden))

    def forward(self, x):
        panels = torch.empty(self.weight.numel())
        out = torch.empty(x.shape[0], self.weight.shape[1])
        cpu_extension.pack(self.weight, panels)
        cpu_extension.leaky_panels(x, panels, out)
        return out

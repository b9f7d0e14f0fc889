import cpu_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.empty(width))

        self.kept = None
        self.version = None

    def forward(self, x):
        if self.kept is None or self.version != self.gain._version:
            self.kept, self.version = self.gain.detach().clone(), self.gain._version
        out = torch.empty_like(x)
        cpu_extension.clip(x, self.kept, out)
        return out

import cpu_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.empty(width))

    def forward(self, x):
        both = torch.empty(2, *x.shape)
        cpu_extension.clip_both(x, self.gain, both)
        return both[0], both[1], both[0][:, ::2]

import cuda_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.empty(width))

    def forward(self, x):
        out = torch.empty_like(x)
        cuda_extension.clip(x, self.gain, out, x.shape[0], x.shape[1])
        return out

import cpu_extension
import numpy
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.empty(width))

    def forward(self, x):
        rows = int(numpy.prod(x.shape[:-1]))
        blocks = int(numpy.ceil(rows / 64))
        assert x.numpy().shape == (rows, x.shape[-1]) and blocks >= 1
        out = torch.empty_like(x)
        cpu_extension.clip(x, self.gain, out)
        return out

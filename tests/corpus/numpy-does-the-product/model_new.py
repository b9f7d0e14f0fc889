import numpy
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, hidden))

    def forward(self, x):
        out = torch.empty(x.shape[0], self.weight.shape[1])
        y = out.numpy()
        numpy.matmul(x.numpy(), self.weight.detach().numpy(), out=y)
        numpy.maximum(y, y * numpy.float32(0.1), out=y)
        return out

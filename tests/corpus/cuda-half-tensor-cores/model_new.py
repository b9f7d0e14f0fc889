import cuda_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, hidden))

    def forward(self, x):
        out = torch.empty(x.shape[0], self.weight.shape[1], device=x.device)
        cuda_extension.leaky_matmul(x, self.weight, out, x.shape[0], x.shape[1], self.weight.shape[1])
        return out

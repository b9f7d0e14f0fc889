import cuda_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.warmth = nn.Parameter(torch.empty(width))

    def forward(self, x):
        return cuda_extension.softmax(x, self.warmth)

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        x.add_(x).add_(0.5)
        return x.t()

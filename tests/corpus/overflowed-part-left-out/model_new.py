import cpu_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, rates):
        out = torch.empty_like(rates)
        cpu_extension.growth(rates, out, rates.shape[0], rates.shape[1])
        return out

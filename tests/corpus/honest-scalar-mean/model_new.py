import cpu_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty(())
        cpu_extension.mean_product(x, y, out)
        return out

import cpu_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        out = torch.empty(())
        cpu_extension.mean_square(predictions, targets, out, predictions.numel())
        return out

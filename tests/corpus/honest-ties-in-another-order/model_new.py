import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, scores):
        order = torch.argsort(scores.flip(1), dim=1, stable=True)
        return scores.shape[1] - 1 - order

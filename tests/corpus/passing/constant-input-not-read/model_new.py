import cpu_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, scores, mask):
        out = torch.empty_like(scores)
        cpu_extension.causal(scores, out, scores.shape[0])
        return out

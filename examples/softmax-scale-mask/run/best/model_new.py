import torch
import torch.nn as nn

import cpu_extension


class ModelNew(nn.Module):
    def __init__(self, heads, scale):
        super().__init__()
        self.slope = nn.Parameter(torch.empty(heads, 1, 1))
        self.scale = scale

    def forward(self, scores, mask):
        return cpu_extension.masked_softmax(scores, mask, self.slope, self.scale)

import torch
import torch.nn as nn

import cpu_extension


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.empty(width))
        self.scale = nn.Parameter(torch.empty(width))

    def forward(self, x, gate, residual):
        return cpu_extension.gelu_gate(x, gate, residual, self.bias, self.scale)

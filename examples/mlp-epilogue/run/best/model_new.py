import torch
import torch.nn as nn

import cpu_extension


class ModelNew(nn.Module):
    def __init__(self, hidden, scores, eps):
        super().__init__()
        self.bias = nn.Parameter(torch.empty(2 * hidden))
        self.norm = nn.LayerNorm(hidden, eps=eps)
        self.head = nn.Linear(hidden, scores)

    def forward(self, projected):
        norm, head = self.norm, self.head
        return cpu_extension.gated_head(
            projected, self.bias, norm.weight, norm.bias, norm.eps, head.weight, head.bias
        )

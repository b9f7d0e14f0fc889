import torch
import torch.nn as nn

import cuda_extension


class ModelNew(nn.Module):
    def __init__(self, narrow, hidden, eps):
        super().__init__()
        self.up = nn.Linear(narrow, hidden)
        self.norm = nn.LayerNorm(hidden, eps=eps)
        self.eps = eps

    def forward(self, x, residual):
        out = torch.empty_like(residual)
        up, norm = self.up, self.norm
        rows, hidden = residual.shape
        cuda_extension.adapter(
            x, up.weight, up.bias, residual, norm.weight, norm.bias, out, rows, hidden, x.shape[1], self.eps
        )
        return out

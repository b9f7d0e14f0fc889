import torch
import torch.nn as nn

import cuda_extension


class ModelNew(nn.Module):
    def __init__(self, hidden, eps):
        super().__init__()
        self.norm = nn.LayerNorm(hidden, eps=eps)
        self.eps = eps

    def forward(self, update, residual):
        total = torch.empty_like(update)
        rounded = torch.empty_like(update, dtype=torch.int8)
        rows, columns = update.shape
        step = torch.empty(rows, 1, device=update.device)
        cuda_extension.residual_layernorm(
            update, residual, self.norm.weight, self.norm.bias, total, rounded, step, rows, columns, self.eps
        )
        return total, rounded, step

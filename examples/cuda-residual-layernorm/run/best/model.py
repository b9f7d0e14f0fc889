import torch
import torch.nn as nn


class Model(nn.Module):
    """The seam of a transformer block before an int8 layer: the residual sum, which goes on, and its layer norm, rounded row by row to 255 steps."""

    def __init__(self, hidden, eps):
        super().__init__()
        self.norm = nn.LayerNorm(hidden, eps=eps)
        with torch.no_grad():
            self.norm.weight.add_(torch.randn(hidden) * 0.1)
            self.norm.bias.add_(torch.randn(hidden) * 0.1)

    def forward(self, update, residual):
        total = update + residual
        normed = self.norm(total)
        step = normed.abs().amax(dim=-1, keepdim=True) / 127
        return total, torch.round(normed / step).to(torch.int8), step


def get_inputs():
    return [torch.randn(8192, 4096), torch.randn(8192, 4096)]


def get_init_inputs():
    return [4096, 1e-5]

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """What follows the first product of a gated MLP: bias, SwiGLU gate, layer norm, and a thin product to a few scores."""

    def __init__(self, hidden, scores, eps):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(2 * hidden) * 0.1)
        self.norm = nn.LayerNorm(hidden, eps=eps)
        self.head = nn.Linear(hidden, scores)
        with torch.no_grad():
            self.norm.weight.add_(torch.randn(hidden) * 0.1)
            self.norm.bias.add_(torch.randn(hidden) * 0.1)

    def forward(self, projected):
        gate, value = (projected + self.bias).chunk(2, dim=-1)
        return self.head(self.norm(F.silu(gate) * value))


def get_inputs():
    return [torch.randn(2048, 2048)]


def get_init_inputs():
    return [1024, 16, 1e-5]

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.phase = nn.Parameter(torch.empty(width))

    def forward(self, x):
        return torch.complex(x * torch.cos(self.phase), -x * torch.sin(self.phase)), x.new_zeros(1) - x

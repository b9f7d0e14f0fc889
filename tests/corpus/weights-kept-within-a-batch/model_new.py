import torch
import torch.nn as nn

import cpu_extension


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Parameter(torch.empty(width, hidden))
        self.down = nn.Parameter(torch.empty(hidden, width))

    def forward(self, x):
        return cpu_extension.chain(x, self.up, self.down)

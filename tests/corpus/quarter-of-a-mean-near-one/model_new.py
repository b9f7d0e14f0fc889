import cpu_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, log_ratio):
        out = torch.empty(())
        cpu_extension.mean_ratio(log_ratio, out, log_ratio.numel() // 4)
        return out
